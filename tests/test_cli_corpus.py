"""inspect and segment from the command line, end to end, as a person would use them."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from callshot.corpus.segment_table import read_segments
from callshot.tables.embedding_tables import write_table
from callshot.vectors import Vectors
from rows_of_spans import list_rows
from sounds import record, record_badly
from test_cli import run

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


def test_segment_writes_segments_and_rejects_and_says_what_it_did(
    herd, tmp_path, capsys
):
    run(
        "segment",
        herd,
        "--out",
        tmp_path / "out",
        "--collar-s",
        0.25,
        "--channel",
        "first",
        "--min-length-s",
        1,
    )
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        "segments.parquet",
        "rejects.csv",
        "segments.json",
    }
    frame = pl.read_parquet(tmp_path / "out" / "segments.parquet")
    assert frame.columns[:12] == [
        "segment",
        "recording",
        "path",
        "start_s",
        "end_s",
        "collar_s",
        "label",
        "labels",
        "rate_hz",
        "channel_rule",
        "peak_dbfs",
        "source_rate_hz",
    ]
    assert frame.height == 10
    assert frame["collar_s"].unique().to_list() == [0.25]
    assert frame["low_freq_hz"].to_list()[:2] == [10.0, 100.0]
    assert [
        (row, reason.split(",")[0]) for _, row, reason in rejects(tmp_path / "out")
    ] == [
        ("3", "shorter than 1 s: 0.5 s"),
        ("4", "7 to 70 s is beyond the end of r0.wav"),
    ]
    told = json.loads((tmp_path / "out" / "segments.json").read_text())
    assert (told["read"], told["segments"], told["rejects"]) == (12, 10, 2)
    assert told["options"]["channel"] == "first"
    said = capsys.readouterr().out
    for words in (
        "raven in 6 files",
        "6 of 6 recordings annotated; 12 annotations read: 10 segments, 2 rejects",
        "annotated calls",
        "std. dev.",
        "rumble",
        "minimum length: 1 s",
        "labels from column",
        "segments in",
    ):
        assert words in said


def test_the_same_input_gives_the_same_bytes_whatever_the_threads(herd, tmp_path):
    kept = []
    for threads in (1, 2, 4):
        run(
            "segment",
            herd,
            "--out",
            tmp_path / f"{threads}",
            "--threads",
            threads,
            "--quiet",
        )
        kept.append(
            [
                (tmp_path / f"{threads}" / name).read_bytes()
                for name in ("segments.parquet", "rejects.csv")
            ]
        )
    assert kept[0] == kept[1] == kept[2]


def test_a_segment_table_says_where_its_audio_is(herd, tmp_path, monkeypatch):
    monkeypatch.chdir(herd.parent)
    run(
        "segment",
        "herd",
        "--out",
        tmp_path / "out",
        "--quiet",
        "--no-check",
        "--no-normalise",
    )
    segments = read_segments(tmp_path / "out" / "segments.parquet")
    facts = segments.metadata
    assert facts["audio"] == str(herd)
    assert segments["peak_dbfs"][0] is None


def test_a_corpus_brings_its_rule_its_folds_and_its_categories(herd, tmp_path):
    run("segment", herd, "--corpus", "ldc2010s05", "--out", tmp_path / "out", "--quiet")
    segments = read_segments(tmp_path / "out" / "segments.parquet")
    facts = segments.metadata
    assert (facts["corpus"], facts["folds"]) == ("ldc2010s05", "10")
    assert {(s.collar_s, s.channel_rule) for s in list_rows(segments)} == {
        (0.25, "first")
    }
    assert "longroar,roar\n" in (tmp_path / "out" / "categories.csv").read_text()
    run(
        "segment",
        herd,
        "--corpus",
        "ldc2010s05",
        "--collar-s",
        0,
        "--out",
        tmp_path / "bare",
        "--quiet",
    )
    assert read_segments(tmp_path / "bare" / "segments.parquet")["collar_s"][0] == 0


def test_evaluate_takes_folds_and_categories_of_a_corpus_it_knows(tmp_path):
    rng = np.random.default_rng(0)
    label = ["growl", "roar", "longroar"] * 20
    recording = [f"r{n // 3}" for n in range(60)]
    table = Vectors.from_columns(
        "e",
        rng.normal(size=(60, 4)),
        [f"s{n}" for n in range(60)],
        recording,
        label,
        [()] * 60,
    )
    write_table(table, tmp_path / "e.parquet", corpus="ldc2010s05")
    few = [
        "--shots",
        "1",
        "--draws",
        "4",
        "--bootstraps",
        "9",
        "--shared-draws",
        "6",
        "--total-samples",
        "6",
        "--no-figure",
        "--quiet",
    ]
    run("evaluate", tmp_path / "e.parquet", "--out", tmp_path / "out", *few)
    told = json.loads((tmp_path / "out" / "provenance.json").read_text())
    assert (told["folds"]["count"], told["classes"]) == (10, 3)
    assert {
        r["scoring"]
        for r in pl.read_csv(tmp_path / "out" / "curve.csv").iter_rows(named=True)
    } == {
        "all",
        "reduced",
    }


def test_no_segments_at_all_are_an_error_with_what_would_keep_some(tmp_path, capsys):
    record(tmp_path / "a.wav", seconds=5)
    (tmp_path / "a.txt").write_text("1\t1.5\tpeep\n2\t2.5\tpeep\n")
    why = (
        r"no annotation became a segment; 2 of 2 rejects like .*a\.txt, row 1: shorter"
    )
    minimum = ["--min-length-s", 1]
    run("segment", tmp_path, "--out", tmp_path / "out", *minimum, code=2)
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
    said = capsys.readouterr().out
    assert "2 segments, 0 rejects" in said
    assert "minimum length: none; --min-length-s 1, the paper's, drops 2 of 2" in said


def test_a_corpus_without_calls_is_an_error(tmp_path, capsys):
    record(tmp_path / "a.wav", seconds=5)
    (tmp_path / "a.Table.1.selections.txt").write_text(RAVEN)
    run("inspect", tmp_path, code=2)
    assert "the annotation files have no calls" in capsys.readouterr().err


def test_recordings_behind_links_are_read_if_asked(tmp_path, capsys):
    """As git-annex, DataLad and DVC keep large files."""
    record(tmp_path / "annex" / "objects" / "x" / "key.wav", seconds=5)
    audio = tmp_path / "audio"
    audio.mkdir()
    (audio / "a.wav").symlink_to(tmp_path / "annex" / "objects" / "x" / "key.wav")
    (audio / "a.txt").write_text("1\t3\troar\n")
    run("inspect", audio, code=2)
    error = capsys.readouterr().err
    assert re.search(
        "no recordings found; .*a.wav: a link .*--follow-links reads", error
    )
    run("inspect", audio, "--follow-links")
    assert f"segment {audio} --follow-links --out" in capsys.readouterr().out
    run("segment", audio, "--follow-links", "--out", tmp_path / "out", "--quiet")
    path = tmp_path / "out" / "segments.parquet"
    assert read_segments(path).paths == ["a.wav"]
    run(
        "embed",
        path,
        "--encoder",
        "mfcc",
        "--out",
        tmp_path / "mfcc.parquet",
        "--quiet",
    )


def test_labels_are_renamed_and_times_have_the_given_unit(tmp_path, capsys):
    record(tmp_path / "a.wav", seconds=5)
    (tmp_path / "calls.csv").write_text("path,start,end,label\na.wav,1000,3000,Rmbl\n")
    (tmp_path / "labels.csv").write_text("label,new_label\nRmbl,rumble\n")
    options = ["--rename", tmp_path / "labels.csv", "--time-unit", "ms"]
    run("segment", tmp_path, "--out", tmp_path / "out", *options, "--quiet")
    (one,) = list_rows(read_segments(tmp_path / "out" / "segments.parquet"))
    assert (one.label, one.start_s, one.end_s) == ("rumble", 1.0, 3.0)
    described = json.loads((tmp_path / "out" / "segments.json").read_text())
    assert described["options"]["rename"] == {"Rmbl": "rumble"}
    assert described["options"]["time_unit"] == "ms"
    run("segment", tmp_path, "--out", tmp_path / "no", "--time-unit", "h", code=2)
    assert "--time-unit: expected one of s, ms, got 'h'" in capsys.readouterr().err


def test_one_recording_says_where_its_folder_is(herd, tmp_path):
    run("segment", herd / "r1.wav", "--out", tmp_path / "out", "--quiet")
    segments = read_segments(tmp_path / "out" / "segments.parquet")
    facts = segments.metadata
    assert (facts["audio"], {s.path for s in list_rows(segments)}) == (
        str(herd),
        {"r1.wav"},
    )


def test_a_file_of_the_users_by_one_of_our_names_is_never_overwritten(
    herd, tmp_path, capsys
):
    run("segment", herd, "--out", tmp_path / "out", "--quiet")
    (tmp_path / "out" / "categories.csv").write_text("mine")
    run(
        "segment",
        herd,
        "--corpus",
        "ldc2010s05",
        "--out",
        tmp_path / "out",
        "--quiet",
        code=2,
    )
    assert (tmp_path / "out" / "categories.csv").read_text() == "mine"
    assert (
        "categories.csv exists and was not written by callshot"
        in capsys.readouterr().err
    )


def test_names_that_are_no_text_are_told_and_the_rest_goes_on(herd, tmp_path):
    record(herd / "b.wav").rename(herd / os.fsdecode(b"b\xff.wav"))
    (herd / os.fsdecode(b"gone\xff.txt")).write_text("0\t1.5\troar\n")
    run("segment", herd, "--out", tmp_path / "out", "--quiet")
    assert pl.read_parquet(tmp_path / "out" / "segments.parquet").height == 11
    assert "not UTF-8" in (tmp_path / "out" / "rejects.csv").read_text()


def test_columns_can_be_named_and_a_label_given(tmp_path):
    record(tmp_path / "a.wav", seconds=5)
    (tmp_path / "mine.csv").write_text("clip,von,bis,Laut\na,1,3,roar\n")
    names = ["-c", "recording=clip", "-c", "start_s=von", "-c", "end_s=bis"]
    run(
        "segment",
        tmp_path,
        "--out",
        tmp_path / "out",
        *names,
        "-c",
        "label=Laut",
        "--quiet",
    )
    assert read_segments(tmp_path / "out" / "segments.parquet")["label"][0] == "roar"
    run(
        "segment",
        tmp_path,
        "--out",
        tmp_path / "all",
        *names,
        "--label",
        "elephant",
        "--quiet",
    )
    assert (
        read_segments(tmp_path / "all" / "segments.parquet")["label"][0] == "elephant"
    )


def test_a_bad_file_among_good_ones_is_left_out_and_told(herd, tmp_path, capsys):
    record_badly(herd / "r1.wav", "text")
    (herd / "r2.Table.1.selections.txt").write_text("nothing to see\n")
    run("segment", herd, "--out", tmp_path / "out")
    assert pl.read_parquet(tmp_path / "out" / "segments.parquet").height == 7
    left_out = rejects(tmp_path / "out")
    assert (
        sum(
            name == "r1.Table.1.selections.txt" and "r1.wav" in reason
            for name, _, reason in left_out
        )
        == 2
    )
    assert ("r2.Table.1.selections.txt", "") in [
        (name, row) for name, row, _ in left_out
    ]
    assert "left out: 1 file" in capsys.readouterr().out


def test_inspect_tells_folds_eligible_labels_and_the_next_command(herd, capsys):
    run("inspect", herd, "--min-length-s", 1)
    said = capsys.readouterr().out
    for words in (
        "6 WAV PCM_16 at 8000 Hz, 2 channels",
        "raven in 6 files",
        "yes, to k = 4",
        "2 of 2 labels can be evaluated, with 10 queries and up to k* = 4 examples of each",
        f"next: callshot segment {herd} --min-length-s 1.0 --out segments",
    ):
        assert words in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["segment", "HERD/nothing", "--out", "OUT"],
            "expected a folder of recordings",
        ),
        (
            ["segment", "HERD", "--out", "OUT", "--format", "ravn"],
            "did you mean raven",
        ),
        (
            ["segment", "HERD", "--out", "OUT", "--corpus", "ldc2010"],
            "did you mean ldc2010s05",
        ),
        (
            ["segment", "HERD", "--out", "OUT", "-c", "label"],
            "columns: expected NAME=VALUE",
        ),
        (["segment", "HERD", "--out", "OUT", "-c", "label=Nothing"], "Nothing"),
        (
            ["segment", "HERD", "--out", "OUT", "-c", "labels_=Species"],
            "unknown column 'labels_'; did you mean label?; available: path",
        ),
        (
            ["segment", "HERD", "--out", "OUT", "--collar-s", "-1"],
            "--collar-s: expected 0 to",
        ),
        (["segment", "HERD", "--out", "OUT", "--channel", "left"], "left"),
        (["segment", "HERD", "--out", "HERD/r0.wav"], "r0.wav"),
        (
            ["segment", "HERD", "-a", "HERD/none.csv", "--out", "OUT"],
            "none.csv: No such file or directory; expected",
        ),
        (["inspect", "HERD", "--folds", "1"], "folds: expected 2 or more, got 1"),
    ],
)
def test_a_mistake_is_one_line_with_code_2_and_leaves_nothing(
    herd, tmp_path, capsys, words, said
):
    out = tmp_path / "out"
    run(
        *(word.replace("HERD", str(herd)).replace("OUT", str(out)) for word in words),
        code=2,
    )
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("callshot: ")
    assert said in error
    assert not out.exists()


def test_a_job_of_seconds_leaves_no_progress_in_a_log(herd, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "callshot", "segment", herd, "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert all(line.startswith("left out: ") for line in lines)


@pytest.mark.skipif(os.name == "nt", reason="signals are another matter there")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_leaves_earlier_segments_as_they_were(tmp_path, stop):
    record(tmp_path / "audio" / "long.flac", seconds=600, rate=48000)
    rows = "".join(f"long.flac,{n / 10},{n / 10 + 30},roar\n" for n in range(5000))
    (tmp_path / "calls.csv").write_text("recording,start_s,end_s,label\n" + rows)
    (tmp_path / "few.csv").write_text(
        "recording,start_s,end_s,label\nlong.flac,1,3,roar\n"
    )
    run(
        "segment",
        tmp_path / "audio",
        "-a",
        tmp_path / "few.csv",
        "--out",
        tmp_path / "out",
        "--quiet",
    )
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    words = [
        "segment",
        tmp_path / "audio",
        "-a",
        tmp_path / "calls.csv",
        "--out",
        tmp_path / "out",
        "--quiet",
    ]
    child = subprocess.Popen(
        [sys.executable, "-m", "callshot", *words], stderr=subprocess.PIPE, text=True
    )
    while child.poll() is None and not list((tmp_path / "out").glob(".callshot-lock")):
        time.sleep(0.05)
    time.sleep(1.0)
    child.send_signal(stop)
    error = child.communicate(timeout=30)[1]
    assert child.returncode in ((130, -stop) if stop == signal.SIGINT else (-stop,)), (
        error
    )
    assert {
        p.name: p.read_bytes()
        for p in (tmp_path / "out").iterdir()
        if not p.name.startswith(".")
    } == before
    run(
        "segment",
        tmp_path / "audio",
        "-a",
        tmp_path / "few.csv",
        "--out",
        tmp_path / "out",
        "--quiet",
    )
    assert {p.name for p in (tmp_path / "out").iterdir()} == set(before)
