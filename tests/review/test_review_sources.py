import errno
import json
import os
import shutil

import numpy as np
import polars as pl
import pytest
import soundfile
from typer.testing import CliRunner

from callshot.cli import app
from callshot.detection.model import load_model
from callshot.detection.scan_files import scan_segment_files
from callshot.encoders.embed import EmbedOptions
from callshot.errors import InputError, OptionError, OutputError
from callshot.records.table_files import write_parquet
from callshot.results import format_provenance
from callshot.review import journal, server
from callshot.review.journal import read_journal
from callshot.review.server import ServerOptions, listen
from callshot.review.sources import HeldOutScores, SourceOptions, open_source
from callshot.tables.embedding_tables import write_table
from callshot.vectors import Vectors
from rows_of_spans import make_row, make_spans
from served_review import serve

NONE = SourceOptions()


def make_segments(folder, count=12):
    """Write recordings and a table of segments of two labels; the label of segment 5 is wrong."""
    (folder / "audio").mkdir(parents=True)
    segments = []
    for n in range(count):
        name = f"{n // 4}_20260314_053000.wav"
        soundfile.write(
            folder / "audio" / name,
            np.random.default_rng(n).normal(0, 0.1, 64000),
            16000,
        )
        label = ("hoot", "bark")[(n + (n == 5)) % 2]
        start_s = n % 4 * 0.9
        segments.append(
            make_row(name, start_s, start_s + 0.5, segment=f"s{n}", label=label)
        )
    return make_spans(segments)


@pytest.fixture
def study(tmp_path):
    segments = make_segments(tmp_path)
    (tmp_path / "study.toml").write_text("")
    work = tmp_path / ".callshot" / "study"
    (work / "segment" / "site").mkdir(parents=True)
    (work / "embed" / "site" / "mfcc").mkdir(parents=True)
    write_parquet(
        segments.take(range(len(segments))[::-1]).frame,
        work / "segment" / "site" / "segments.parquet",
        {"audio": str(tmp_path / "audio")},
    )
    vectors = np.random.default_rng(0).normal(0, 0.3, (len(segments), 4))
    vectors[::2, 0] += 3
    table = Vectors.from_columns(
        "mfcc",
        vectors,
        segments["segment"],
        segments["recording"],
        segments["label"],
        [tuple(labels) for labels in segments["labels"]],
    )
    write_table(table, work / "embed" / "site" / "mfcc" / "embeddings.parquet")
    return tmp_path


def find_table(study):
    return study / ".callshot" / "study" / "segment" / "site" / "segments.parquet"


def test_segments_of_a_study_have_scores_and_a_wrong_label_is_the_most_uncertain(study):
    with serve(study, study / "review") as (client, review):
        session = client.get("/api/session")
        assert review.source.kind == "study"
        assert not any(one["why"] for one in session["orders"])
        worst = client.queue(order="best")[-1]
        item = client.items(worst)[0]
        assert (item["recording"], item["start_s"]) == ("1_20260314_053000.wav", 0.9)
        assert item["runner_up_score"] > item["score"]
        assert session["orders"][0]["name"] == "doubtful"
        assert client.queue(order="doubtful")[0] == worst
        wrong = client.queue(order="doubtful", doubt="mislabelled")
        items = review.items.frame
        is_wrong = items["runner_up_score"] > items["score"]
        assert sorted(wrong) == is_wrong.arg_true().to_list()
        before = item["score"]
        client.decide(worst, "relabel", label=item["runner_up"])
        review.ask_scores().result()
        assert client.items(0)[0]["score"] != before
        classes = client.get("/api/items/0/examples")["classes"]
        assert [one["label"] for one in classes] != []


def test_a_table_of_segments_is_reviewed_without_scores(study):
    with serve(find_table(study), study / "other") as (client, review):
        session = client.get("/api/session")
        assert review.source.kind == "segments"
        assert session["has_clock"]
        available = {one["name"] for one in session["orders"] if one["why"] is None}
        assert available == {"sample", "time"}
        assert len(client.queue(order="sample")) == 12
        assert client.ask("GET", "/api/sound?item=0")[0] == 200
        assert "segments have no scores" in client.get("/api/progress")["curve"]["why"]


def test_a_scan_is_served_with_its_items_sounds_and_pictures(scan, tmp_path):
    with serve(scan, tmp_path / "review") as (client, review):
        assert client.get("/api/queue")["total"] == len(review.items) > 20
        ids = client.queue(order="best")
        scores = [one["score"] for one in client.items(*ids[:50])]
        assert scores == sorted(scores, reverse=True)
        _, headers, content = client.ask("GET", f"/api/sound?item={ids[0]}&speed=2")
        assert (content[:4], headers["x-speed"]) == (b"RIFF", "2")
        assert client.ask("GET", "/api/spectrogram?item=0")[2][:4] == b"\x89PNG"
        # Hours of a filter may go over midnight.
        for to_hour, names in ((6, ("053000", "220000")), (5, ("220000",))):
            ids = client.queue(from_hour=21, to_hour=to_hour, limit=500)
            found = {review.items["recording"][one] for one in ids}
            assert found == {f"SITE_20260314_{name}.wav" for name in names}


def test_scores_of_segments_are_those_of_the_literal_version():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 5)).astype(np.float32)
    label = rng.integers(0, 3, 30)
    recording = rng.integers(0, 6, 30)
    names = pl.Series(["abc"[number] for number in label])
    scores = HeldOutScores(vectors, names.to_list(), recording)
    ranking = scores.rank(names, ["a", "b", "c"])
    for row in range(30):
        expected = {}
        for name in range(3):
            others = [
                n
                for n in range(30)
                if label[n] == name and recording[n] != recording[row]
            ]
            if others:
                mean = vectors[others].astype(float).mean(axis=0)
                expected[name] = -float(((vectors[row] - mean) ** 2).sum())
        own = expected.pop(label[row])
        assert ranking["score"][row] == pytest.approx(own)
        assert ranking["runner_up"][row] == "abc"[max(expected, key=expected.get)]
        assert ranking["runner_up_score"][row] == pytest.approx(max(expected.values()))


def test_a_folder_that_is_nothing_to_review_is_one_line(tmp_path, scan):
    def check(message, path=tmp_path):
        with pytest.raises(InputError, match=message):
            open_source(path, NONE)

    facts = tmp_path / "scan.json"
    check(r"expected the folder of callshot scan")
    check(r"expected the folder of callshot scan", tmp_path / "absent.parquet")
    facts.write_text("[]")
    check("not from callshot")
    facts.write_bytes(format_provenance({"files": {}}))
    check("expected the facts of a scan")
    facts.write_text((scan / "scan.json").read_text())
    check("cannot be read")
    (tmp_path / "events.parquet").write_bytes(b"PAR1xxxxPAR1")
    check(r"events\.parquet")


def test_cards_work_without_the_recordings_and_the_sound_says_why(scan, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(scan.parent / "recordings", moved)
    away = SourceOptions(recordings=tmp_path / "nowhere")
    with serve(scan, tmp_path / "a", away) as (client, _):
        assert client.get("/api/session")["preset"] == "audible"
        assert client.items(0)[0]["score"]
        for name in ("sound", "spectrogram", "waveform"):
            assert "--recordings" in client.get(f"/api/{name}?item=0", 404)["error"]
        client.decide(0, "confirm")
    with serve(scan, tmp_path / "b", SourceOptions(recordings=moved)) as (client, _):
        assert client.ask("GET", "/api/sound?item=0")[0] == 200


def test_a_review_without_the_model_says_what_to_give(scan, tmp_path):
    copy = tmp_path / "scan"
    shutil.copytree(scan, copy)
    facts = json.loads((copy / "scan.json").read_text())
    facts["model"] |= {"path": "/nowhere/calls.npz", "file": "gone.npz"}
    (copy / "scan.json").write_bytes(format_provenance(facts))
    with serve(copy) as (client, review):
        assert "--model" in review.why_no_scores
        client.decide(0, "confirm")
    given = SourceOptions(model=scan.parent / "calls.npz")
    with serve(copy, None, given) as (_, review):
        review.ask_scores().result()
        assert review.why_no_scores == ""


def test_a_review_of_other_detections_is_refused(scan, study, tmp_path):
    with serve(scan, tmp_path / "review") as (client, _):
        client.decide(0, "confirm")
    with (
        pytest.raises(InputError, match="a review of other detections"),
        serve(study, tmp_path / "review"),
    ):
        pass


def test_a_foreign_journal_is_one_line_and_stays_as_it_is(scan, tmp_path):
    path = tmp_path / "review" / "decisions.jsonl"
    path.parent.mkdir()
    letter = b"hello, I am no database, but a letter to my aunt" * 50
    for content in (letter, format_provenance({"mine": 1})):
        path.write_bytes(content)
        with (
            pytest.raises(InputError, match=r"decisions\.jsonl: line") as caught,
            serve(scan, path.parent),
        ):
            pass
        assert "\n" not in str(caught.value)
        assert path.read_bytes() == content


def test_a_full_disk_is_told_to_the_page_and_nothing_is_saved(
    scan, tmp_path, monkeypatch
):
    with serve(scan, tmp_path / "review") as (client, review):
        room = 2000
        write = os.write

        def write_to_full_disk(descriptor, content):
            nonlocal room
            if room == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = write(descriptor, content[:room])
            room -= written
            return written

        monkeypatch.setattr("callshot.review.journal.os.write", write_to_full_disk)
        errors = []
        for item in range(20):
            decision = {"uuid": f"{item:032x}", "item": item, "action": "confirm"}
            body = {"decisions": [decision]}
            status, _, content = client.ask("POST", "/api/decisions", body)
            if status != 200:
                assert status == 500
                errors.append(json.loads(content)["error"])
        assert "nothing was saved" in errors[0]
        assert os.strerror(errno.ENOSPC) in errors[0]
        saved = review.seq
        assert client.get("/api/progress")["done"] == saved
        monkeypatch.undo()
        client.decide(19, "confirm")
        assert review.seq == saved + 1
    assert len(read_journal(tmp_path / "review").entries) == saved + 1


def test_a_folder_that_cannot_be_written_is_one_line(scan, tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "why_not_writable", lambda folder: "read-only")
    with (
        pytest.raises(OutputError, match=r"read-only.*--out"),
        serve(scan, tmp_path / "r"),
    ):
        pass


def test_a_port_in_use_is_one_line_and_another_is_taken_by_default(monkeypatch):
    with listen(ServerOptions(port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(OutputError, match=f"port {port} .*choose another --port"):
            listen(ServerOptions(port=port))
        monkeypatch.setattr(server, "FIRST_PORT", port)
        monkeypatch.setattr(server, "PORTS", 2)
        with listen(ServerOptions()) as second:
            assert second.getsockname()[1] != port


def test_the_command_without_the_extra_says_how_to_install_it(
    scan, tmp_path, monkeypatch
):
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    result = CliRunner().invoke(
        app, ["review", str(scan), "--out", str(tmp_path), "--no-browser"]
    )
    assert isinstance(result.exception, OptionError)
    assert "callshot[review]" in str(result.exception)


def test_undo_is_unlimited_and_redo_brings_it_back(scan, tmp_path):
    with serve(scan, tmp_path / "review") as (client, review):
        other = client.as_person("bob")
        for item in range(10):
            client.decide(item, "confirm")
        other.decide(0, "reject")
        batch = [{"uuid": f"{n:032x}", "item": n, "action": "reject"} for n in (20, 21)]
        client.post("/api/decisions", {"decisions": batch})
        assert sorted(one["id"] for one in client.undo()["items"]) == [20, 21]
        for item in range(9, -1, -1):
            assert [one["id"] for one in client.undo()["items"]] == [item]
        assert client.undo()["nothing"]
        assert other.items(0)[0]["decision"]["action"] == "reject"
        for _ in range(11):
            assert not client.undo(action="redo")["nothing"]
        assert client.undo(action="redo")["nothing"]
        assert client.get("/api/progress")["done"] == 12
        client.undo(5)
        client.decide(30, "skip")
        assert client.undo(action="redo")["nothing"]
        seq = review.seq
    with serve(scan, tmp_path / "review") as (client, review):
        progress = client.get("/api/progress")
        assert (review.seq, progress["done"], progress["skipped"]) == (seq, 6, 1)


def learn(*words):
    return CliRunner().invoke(app, ["learn", *(str(word) for word in words)])


@pytest.mark.parametrize("kind", ["study", "segments"])
def test_the_next_command_after_a_review_of_segments_works(study, tmp_path, kind):
    path = study if kind == "study" else find_table(study)
    with serve(path, tmp_path / "review") as (client, _):
        client.decide(0, "confirm")
        words = client.get("/api/session")["learn_command"].split()[2:]
    assert ("--encoder" in words) == (kind == "segments")
    out = tmp_path / "calls.npz"
    given = {"NAME": "mfcc", "calls.npz": out}
    result = learn(*(given.get(word, word) for word in words))
    assert result.exit_code == 0, result.output
    model = load_model(out)
    assert model.encoder == "mfcc"
    assert len(model.examples) == 1


def test_a_review_whose_encoder_is_unknown_asks_for_it(study, tmp_path):
    with serve(find_table(study), tmp_path / "review") as (client, _):
        client.decide(0, "confirm")
    result = learn(tmp_path / "review", "--out", tmp_path / "calls.npz")
    assert isinstance(result.exception, OptionError)
    assert "--encoder NAME" in str(result.exception)
    result = learn("--add", tmp_path / "review", "--out", tmp_path / "calls.npz")
    assert isinstance(result.exception, OptionError)
    assert f"callshot learn {tmp_path / 'review'}" in str(result.exception)


def test_segments_that_a_scan_labelled_are_reviewed_and_learned(study, scan, tmp_path):
    table = find_table(study)
    model = scan.parent / "calls.npz"
    folder = tmp_path / "labels"
    scan_segment_files(model, table, folder, EmbedOptions(store=tmp_path / "store"))
    with serve(folder, tmp_path / "review") as (client, review):
        assert review.source.kind == "segments"
        assert review.items.frame["score"].is_finite().all()
        assert client.ask("GET", "/api/sound?item=0")[0] == 200
        client.decide(0, "confirm")
    out = tmp_path / "calls.npz"
    assert learn(tmp_path / "review", "--out", out).exit_code == 0
    assert len(load_model(out).examples) == 1
    assert learn("--add", tmp_path / "review", "--out", out).exit_code == 0
    assert len(load_model(out).examples) == len(load_model(model).examples) + 1


def test_a_review_is_not_added_to_a_model_that_changed_since(study, scan, tmp_path):
    model = tmp_path / "calls.npz"
    shutil.copy(scan.parent / "calls.npz", model)
    review = tmp_path / "review"
    store = EmbedOptions(store=tmp_path / "store")
    scan_segment_files(model, find_table(study), tmp_path / "labels", store)
    with serve(tmp_path / "labels", review) as (client, _):
        client.decide(0, "confirm")
    assert learn(review, "--add", model, "--out", model).exit_code == 0
    result = learn("--add", review, "--out", tmp_path / "better.npz")
    assert isinstance(result.exception, InputError)
    assert "has changed" in str(result.exception)
