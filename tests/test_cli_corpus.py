"""inspect and segment from the command line, end to end, as a person would use them."""

import csv
import json
import os
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from callshot.corpus.segment_table import read_segments
from callshot.tables.embedding_tables import write_table
from callshot.vectors import Vectors
from rows_of_spans import list_rows
from sounds import record, record_badly
from test_cli import evaluate, run

RAVEN = (
    "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\t"
    "Low Freq (Hz)\tHigh Freq (Hz)\tSpecies\n"
)
CALLS = "1\tSpectrogram 1\t1\t0.5\t2.5\t10\t80\trumble\n2\tSpectrogram 1\t1\t3\t5\t100\t900\troar\n"
EXTRA = "3\tSpectrogram 1\t1\t6\t6.5\t10\t80\tblow\n4\tSpectrogram 1\t1\t7\t70\t10\t80\tblow\n"


@pytest.fixture
def herd(tmp_path):
    """Six recordings with Raven tables, one empty; one call is short, one is beyond the end."""
    folder = tmp_path / "herd"
    for n in range(6):
        record(folder / f"r{n}.wav", seconds=8, channels=2, seed=n)
        rows = CALLS if n else CALLS + EXTRA
        (folder / f"r{n}.Table.1.selections.txt").write_text(
            RAVEN + (rows if n < 5 else "")
        )
    return folder


def rejects(out):
    with (out / "rejects.csv").open(encoding="utf-8", newline="") as file:
        return [
            (Path(r["file"]).name, r["row"], r["reason"]) for r in csv.DictReader(file)
        ]


def segment(audio, out, *options, code=0):
    """Cut segments without a word; return them."""
    run("segment", audio, "--out", out, "--quiet", *options, code=code)
    return read_segments(out / "segments.parquet") if code == 0 else None


def test_segment_writes_segments_and_rejects_and_says_what_it_did(
    herd, tmp_path, capsys
):
    out = tmp_path / "out"
    options = ("--collar-s", 0.25, "--channel", "first", "--min-length-s", 1)
    run("segment", herd, "--out", out, *options)
    names = {path.name for path in out.iterdir()}
    assert names == {"segments.parquet", "rejects.csv", "segments.json"}
    frame = pl.read_parquet(out / "segments.parquet")
    columns = "segment recording path start_s end_s collar_s label labels rate_hz"
    columns += " channel_rule peak_dbfs source_rate_hz"
    assert frame.columns[:12] == columns.split()
    assert frame.height == 10
    assert frame["collar_s"].unique().to_list() == [0.25]
    assert frame["low_freq_hz"].to_list()[:2] == [10.0, 100.0]
    reasons = [(row, reason.split(",")[0]) for _, row, reason in rejects(out)]
    assert reasons == [
        ("3", "shorter than 1 s: 0.5 s"),
        ("4", "7 to 70 s is beyond the end of r0.wav"),
    ]
    told = json.loads((out / "segments.json").read_text())
    assert (told["read"], told["segments"], told["rejects"]) == (12, 10, 2)
    assert told["options"]["channel"] == "first"
    said = capsys.readouterr()
    counts = "6 of 6 recordings annotated; 12 annotations read: 10 segments, 2 rejects"
    assert counts in said.out
    assert "raven in 6 files" in said.out
    # A job of seconds leaves no progress in a log.
    assert all(line.startswith("left out: ") for line in said.err.splitlines())


def test_the_same_input_gives_the_same_bytes_whatever_the_threads(herd, tmp_path):
    kept = []
    for threads in (1, 4):
        out = tmp_path / f"{threads}"
        segment(herd, out, "--threads", threads)
        names = ("segments.parquet", "rejects.csv")
        kept.append([(out / name).read_bytes() for name in names])
    assert kept[0] == kept[1]


def test_a_segment_table_says_where_its_audio_is(herd, tmp_path, monkeypatch):
    monkeypatch.chdir(herd.parent)
    segments = segment("herd", tmp_path / "out", "--no-check", "--no-normalise")
    assert segments.metadata["audio"] == str(herd)
    assert segments["peak_dbfs"][0] is None
    one = segment(herd / "r1.wav", tmp_path / "one")
    assert (one.metadata["audio"], set(one.paths)) == (str(herd), {"r1.wav"})


def test_a_corpus_brings_its_rule_its_folds_and_its_categories(herd, tmp_path, capsys):
    known = ("--corpus", "ldc2010s05")
    segments = segment(herd, tmp_path / "out", *known)
    facts = segments.metadata
    assert (facts["corpus"], facts["folds"]) == ("ldc2010s05", "10")
    rules = {(one.collar_s, one.channel_rule) for one in list_rows(segments)}
    assert rules == {(0.25, "first")}
    assert "longroar,roar\n" in (tmp_path / "out" / "categories.csv").read_text()
    bare = segment(herd, tmp_path / "bare", *known, "--collar-s", 0)
    assert bare["collar_s"][0] == 0
    segment(herd, tmp_path / "plain")
    (tmp_path / "plain" / "categories.csv").write_text("mine")
    segment(herd, tmp_path / "plain", *known, code=2)
    assert (tmp_path / "plain" / "categories.csv").read_text() == "mine"
    message = "categories.csv exists and was not written by callshot"
    assert message in capsys.readouterr().err


def test_evaluate_takes_folds_and_categories_of_a_corpus_it_knows(tmp_path):
    rng = np.random.default_rng(0)
    label = ["growl", "roar", "longroar"] * 20
    recording = [f"r{n // 3}" for n in range(60)]
    names = [f"s{n}" for n in range(60)]
    vectors = rng.normal(size=(60, 4))
    table = Vectors.from_columns("e", vectors, names, recording, label, [()] * 60)
    write_table(table, tmp_path / "e.parquet", corpus="ldc2010s05")
    evaluate(tmp_path / "e.parquet", tmp_path / "out", "--shots", 1)
    told = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert (told["folds"]["count"], told["classes"]) == (10, 3)
    scorings = set(pl.read_csv(tmp_path / "out" / "curve.csv")["scoring"])
    assert scorings == {"all", "reduced"}


def test_no_segments_at_all_are_an_error_with_what_would_keep_some(tmp_path, capsys):
    record(tmp_path / "a.wav", seconds=5)
    (tmp_path / "a.txt").write_text("1\t1.5\tpeep\n2\t2.5\tpeep\n")
    why = (
        r"no annotation became a segment; 2 of 2 rejects like .*a\.txt, row 1: shorter"
    )
    minimum = ["--min-length-s", 1]
    segment(tmp_path, tmp_path / "out", *minimum, code=2)
    said = capsys.readouterr().err
    assert re.search(why, said)
    assert "--min-length-s 0.5 would keep nearly all" in said
    assert not (tmp_path / "out" / "segments.parquet").exists()
    run("inspect", tmp_path, *minimum, code=2)
    said = capsys.readouterr()
    assert "0 segments, 2 rejects" in said.out
    assert "next:" not in said.out
    assert re.search(why, said.err)
    run("inspect", tmp_path)
    assert "2 segments, 0 rejects" in capsys.readouterr().out
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.Table.1.selections.txt").write_text(RAVEN)
    run("inspect", tmp_path, code=2)
    assert "the annotation files have no calls" in capsys.readouterr().err


def test_bad_files_and_names_among_good_ones_are_left_out_and_told(
    herd, tmp_path, capsys
):
    record_badly(herd / "r1.wav", "text")
    (herd / "r2.Table.1.selections.txt").write_text("nothing to see\n")
    record(herd / "b.wav").rename(herd / os.fsdecode(b"b\xff.wav"))
    (herd / os.fsdecode(b"gone\xff.txt")).write_text("0\t1.5\troar\n")
    run("segment", herd, "--out", tmp_path / "out")
    assert pl.read_parquet(tmp_path / "out" / "segments.parquet").height == 7
    left_out = rejects(tmp_path / "out")
    of_r1 = [name for name, _, reason in left_out if "r1.wav" in reason]
    assert of_r1 == ["r1.Table.1.selections.txt"] * 2
    assert ("r2.Table.1.selections.txt", "") in [one[:2] for one in left_out]
    assert any("not UTF-8" in reason for *_, reason in left_out)
    assert "left out: " in capsys.readouterr().out


def test_inspect_tells_folds_eligible_labels_and_the_next_command(herd, capsys):
    run("inspect", herd, "--min-length-s", 1)
    said = capsys.readouterr().out
    assert "2 of 2 labels can be evaluated, with 10 queries and up to k* = 4" in said
    assert f"next: callshot segment {herd} --min-length-s 1.0 --out segments" in said


MISTAKES = {
    "segment HERD/nothing --out OUT": "expected a folder of recordings",
    "segment HERD --out OUT --format ravn": "did you mean raven",
    "segment HERD --out OUT --corpus ldc2010": "did you mean ldc2010s05",
    "segment HERD --out OUT -c labels_=Species": (
        "unknown column 'labels_'; did you mean label?; available: path"
    ),
    "segment HERD --out HERD/r0.wav": "r0.wav",
    "segment HERD -a HERD/none.csv --out OUT": (
        "none.csv: No such file or directory; expected"
    ),
}


def test_a_mistake_is_one_line_with_code_2_and_leaves_nothing(herd, tmp_path, capsys):
    out = tmp_path / "out"
    for words, message in MISTAKES.items():
        command = words.replace("HERD", str(herd)).replace("OUT", str(out))
        run(*command.split(), code=2)
        (error,) = capsys.readouterr().err.splitlines()
        assert error.startswith("callshot: ")
        assert message in error
        assert not out.exists()
