"""Commands from and to a bucket and a web server: the same results as on a disk, or one line."""

import numpy as np
import polars as pl
import pytest
import soundfile

from callshot.cli import app
from callshot.errors import CallshotError
from rows_of_spans import make_row, make_spans
from stores import BUCKET, SECRET, serve_files, upload

URL = f"s3://{BUCKET}"
RATE_HZ = 8000
# Where these have the folder of the recordings or of a table in them.
WITH_PATHS = ("segments.json", "segments.parquet", "provenance.json", "scan.json")
CHAIN = (
    "segment {0}/in --annotations {0}/in --out {0}/segments -q",
    "embed {0}/segments/segments.parquet --encoder mfcc --out {0}/table.parquet --store {1} -q",
    "evaluate {0}/table.parquet --out {0}/evaluation --shots 1-2 --draws 5 --folds 4 "
    "--bootstraps 20 --shared-draws 20 --total-samples 20 --permutations 0 "
    "--no-figure --corpus calls -q",
    "learn {0}/in --encoder mfcc --window 1 --out {0}/model.npz --store {1} -q",
    "index {0}/in --encoder mfcc --window 1 --out {0}/index -q",
    "scan {0}/model.npz {0}/index --out {0}/scan -q",
    "score {0}/scan/events.csv {0}/in --recordings {0}/in --out {0}/scores "
    "--no-figure --samples 10 -q",
    "convert {0}/scan/events.csv --to audacity --out {0}/converted -q",
)


def call(line, *places):
    """Run a command in this process."""
    app(line.format(*places).split(), standalone_mode=False)


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """Return a folder of four recordings with calls of two kinds, and their selection tables."""
    folder = tmp_path_factory.mktemp("calls")
    noise = np.random.default_rng(0).normal(0, 0.02, (4, 12 * RATE_HZ))
    tone = np.arange(RATE_HZ) / RATE_HZ
    header = "Selection\tBegin Time (s)\tEnd Time (s)\tAnnotation\n"
    for number, signal in enumerate(noise):
        rows = []
        for row in range(4):
            start_s = 0.5 + 3 * row
            label, pitch_hz = (("low", 800), ("high", 2000))[row % 2]
            first = round(start_s * RATE_HZ)
            signal[first : first + RATE_HZ] += 0.3 * np.sin(2 * np.pi * pitch_hz * tone)
            rows.append(f"{row + 1}\t{start_s}\t{start_s + 1}\t{label}\n")
        path = folder / f"in/site{number % 2}/r{number}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, signal, RATE_HZ)
        path.with_suffix(".txt").write_text(header + "".join(rows))
    return folder


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def test_the_chain_of_commands_writes_the_same_files_to_a_bucket_and_to_a_disk(
    bucket, calls, store, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    upload(bucket, calls / "in", f"{BUCKET}/in")
    for line in CHAIN:
        call(line, calls, store)
        call(line, URL, store)
    assert not list(tmp_path.glob("s3*"))
    names = [path.relative_to(calls).as_posix() for path in calls.rglob("*.*")]
    written = [
        name for name in names if not name.startswith("in/") and "/." not in name
    ]
    assert len(written) > 25
    for name in written:
        if name.startswith(("index/recordings", "scan/raven-all")) or name.endswith(
            ".lock"
        ):
            continue  # by the stamp of the recording; with the path of its folder
        content = bucket.cat_file(f"{BUCKET}/{name}")
        assert SECRET.encode() not in content
        if not name.endswith(WITH_PATHS):
            assert content == (calls / name).read_bytes(), name
    remote = pl.read_parquet(bucket.open(f"{BUCKET}/segments/segments.parquet"))
    assert remote.equals(pl.read_parquet(calls / "segments/segments.parquet"))


ON_A_DISK = (
    "init {0}/in --out {1}/study.toml",
    "run {0}/study.toml",
    "run {1}/url.toml",
    "review {0}/scan",
    "synth {0}/corpus",
    "embed {1}/x.parquet --encoder mfcc --store {0}/store --out {1}/a.parquet",
    "batch slurm --workers 1 --hours 1 --out {0}/job.sh -- index a --out b",
)


def test_commands_that_work_on_a_disk_only_refuse_urls_in_one_line(
    bucket, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("scan/scan.json", "study.toml", "in/a.wav"):
        bucket.pipe_file(f"{BUCKET}/{name}", b"{}")
    (tmp_path / "url.toml").write_text(f'[corpus.calls]\naudio = "{URL}/in"\n')
    make_spans([make_row("a.wav")]).frame.write_parquet(tmp_path / "x.parquet")
    message = r"s3://\S+: expected a path on this machine"
    for line in ON_A_DISK:
        with pytest.raises(CallshotError, match=message) as caught:
            call(line, URL, tmp_path)
        assert "\n" not in str(caught.value)
        assert not (tmp_path / "s3:").exists()


def test_recordings_on_a_web_server_are_read_and_it_takes_no_results(calls, tmp_path):
    lines = [
        "segment {0}/in --annotations {0}/in --out {1} -q",
        "embed {1}/segments.parquet --encoder mfcc --out {1}.parquet --store {1}-store -q",
    ]
    tables = []
    with serve_files(calls) as url:
        for place, out in ((url, tmp_path / "web"), (calls, tmp_path / "disk")):
            for line in lines:
                call(line, place, out)
            tables.append(pl.read_parquet(out.with_suffix(".parquet")))
        with pytest.raises(CallshotError, match="a web server takes no files"):
            call("segment {1}/in --annotations {1}/in --out {0}/out", url, calls)
    assert len(tables[0]) == 16
    assert tables[0].equals(tables[1])
