"""callshot verify: every fault that is planted in a study is found and named."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from callshot.encoders.store import FINGERPRINT, Store
from callshot.errors import InputError, OptionError
from callshot.records import FAILURES, Finding
from callshot.study.verify import verify_path
from callshot.tables.embedding_tables import write_sequences
from studies import run_steps, write_embeddings
from test_cli import run

WORK = ".callshot/study"


@pytest.fixture
def saved(finished):
    """The folder of a study that has run once, which no test changes."""
    return finished.parent.with_name("saved")


@pytest.fixture
def study(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "study")


def find_faults(path, **options):
    """Return the states of all files that are not whole."""
    findings = list(verify_path(path, **options))
    assert len(findings) == len({finding.path for finding in findings})
    return {one.path: one.state for one in findings if one.state != "ok"}


def flip(path, position=-30):
    raw = bytearray(path.read_bytes())
    raw[position] ^= 4
    path.write_bytes(raw)
    return path


def cut(path):
    path.write_bytes(path.read_bytes()[:-10])
    return path


def remove(path):
    path.unlink()
    return path


def add(path):
    path.write_text("mine", encoding="utf-8")
    return path


def shard(study, number):
    return sorted(study.glob("store/*/shard-*"))[number]


FAULTS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "a bit of a shard": ("damaged", lambda s: flip(shard(s, 0))),
    "a cut shard": ("damaged", lambda s: cut(shard(s, 1))),
    "the fingerprint of an encoder": (
        "damaged",
        lambda s: flip(next(s.glob("store/*/fingerprint.json"))),
    ),
    "a file that is not a shard": (
        "not from callshot",
        lambda s: add(s / "store" / "mine.txt"),
    ),
    "a bit of a recording": ("damaged", lambda s: flip(s / "recordings" / "r0.wav")),
    "a recording that is gone": ("missing", lambda s: remove(s / "recordings/r1.wav")),
    "an edited annotation": ("damaged", lambda s: add(s / "recordings" / "r2.txt")),
    "a bit of a table": (
        "damaged",
        lambda s: flip(s / WORK / "embed/here/mfcc/embeddings.parquet"),
    ),
    "an edited result": ("damaged", lambda s: add(s / "results/here/curve.csv")),
    "a result that is gone": ("missing", lambda s: remove(s / "results/report.html")),
    "a file among the results": (
        "not from callshot",
        lambda s: add(s / "results" / "my.txt"),
    ),
    "the provenance of an evaluation": (
        "damaged",
        lambda s: cut(s / WORK / "evaluate/here/mfcc/provenance.json"),
    ),
    "the record of a step": (
        "damaged",
        lambda s: cut(s / WORK / "fold/here/step.json"),
    ),
    "a note that is gone": (
        "missing",
        lambda s: remove(s / WORK / "evaluate/here/random/step.json"),
    ),
    "cut segments": (
        "damaged",
        lambda s: cut(s / WORK / "segment/here/segments.parquet"),
    ),
}


def test_a_finished_study_is_whole_and_every_planted_fault_is_found(saved, tmp_path):
    states = [finding.state for finding in verify_path(saved / "study.toml")]
    assert set(states) == {"ok"}
    assert len(states) > 60
    assert len(FAULTS) >= 10
    for number, (state, plant) in enumerate(FAULTS.values()):
        study = shutil.copytree(saved, tmp_path / f"{number}")
        path = plant(study)
        faults = find_faults(study / "study.toml")
        assert faults.pop(path) == state
        # Without a readable list of files, those of the folder are not known.
        assert all(path.parent in other.parents for other in faults)


def test_the_command_names_all_faults_with_exit_code_1(study, monkeypatch, capsys):
    monkeypatch.chdir(study)
    monkeypatch.setenv("COLUMNS", "300")
    planted = [(state, plant(study)) for state, plant in FAULTS.values()]
    run("verify", "study.toml", code=1)
    said = capsys.readouterr().out.splitlines()
    for state, path in planted:
        name = path.relative_to(study).as_posix()
        (line,) = [line for line in said if f"{name}: " in line]
        assert line.startswith(f"{state}: ")


def test_repair_sets_damaged_shards_aside_and_the_next_run_makes_them_again(study):
    damaged = flip(shard(study, 0))
    assert find_faults(study / "store", repair=True) == {damaged: "damaged"}
    aside = damaged.with_name(f"{damaged.name}.damaged")
    assert find_faults(study / "store") == {aside: "quarantined"}
    shutil.rmtree(study / WORK / "embed")
    run_steps(study / "study.toml")
    assert find_faults(study / "study.toml") == {aside: "quarantined"}
    assert FAILURES == ("missing", "damaged")


def test_repair_does_not_set_aside_what_the_system_does_not_let_it_read(
    study, monkeypatch
):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("callshot.chunks.sha256_file", refuse)
    (finding,) = [
        one
        for one in verify_path(study / "store", repair=True)
        if one.path == shard(study, 0)
    ]
    expected = "cannot be read (Permission denied); correct that and run again"
    assert (finding.state, finding.reason) == ("damaged", expected)
    assert finding.path.exists()


def test_a_record_on_a_failing_disk_is_set_aside_as_a_shard_is(study, monkeypatch):
    record = min((study / "store").glob(f"*/{FINGERPRINT}"))
    read_bytes = Path.read_bytes

    def fail(path):
        if path == record:
            raise OSError(errno.EIO, "Input/output error")
        return read_bytes(path)

    monkeypatch.setattr(Path, "read_bytes", fail)
    findings = [*verify_path(study / "store", repair=True)]
    (finding,) = [one for one in findings if one.path == record]
    assert finding.reason.startswith("cannot be read (Input/output error); it was set")
    assert not record.exists()


def test_a_shard_without_a_checksum_in_its_name_is_not_from_callshot(tmp_path):
    with Store(tmp_path, {"encoder": "x"}) as store:
        store.add("a", "k", np.ones(2, np.float32))
    [new] = tmp_path.glob("*/shard-*")
    renamed = new.rename(new.with_name("shard-1-0123456789abcdef.npy"))
    with Store(tmp_path, {"encoder": "x"}) as store:
        assert store.find(["a"]) == {}
    assert find_faults(tmp_path) == {renamed: "not from callshot"}


def test_any_changed_number_of_a_table_is_found(tmp_path):
    path = write_embeddings(tmp_path / "mine.parquet")
    assert list(verify_path(path)) == [Finding(path, "ok")]
    frame = pl.read_parquet(path)
    metadata = pl.read_parquet_metadata(path)
    metadata.pop("ARROW:schema")
    changed = frame.with_columns(pl.col("embedding").list.eval(pl.element() + 1e-6))
    for content in (changed, frame.with_columns(label=pl.lit("roar")), frame.head(9)):
        content.write_parquet(path, metadata=metadata)
        assert find_faults(path) == {path: "damaged"}
    frame.write_parquet(path, metadata=metadata, compression="gzip")
    assert find_faults(path) == {}
    frame.write_parquet(path)
    assert find_faults(path) == {path: "unverified"}
    cut(path)
    assert find_faults(path) == {path: "damaged"}


def test_a_number_that_is_not_finite_is_damage(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("recording,label,e0\na,x,1\nb,y,inf\n", encoding="utf-8")
    assert find_faults(path) == {path: "damaged"}
    sequences = tmp_path / "mine.sequences.parquet"
    for value, state in ((1.0, "unverified"), (np.nan, "damaged")):
        write_sequences(sequences, ["a"], iter([np.full((2, 3), value, np.float32)]))
        assert find_faults(sequences) == {sequences: state}


def test_what_cannot_be_verified_or_repaired_is_an_error(tmp_path):
    for path in (tmp_path, tmp_path / "none.parquet"):
        with pytest.raises(InputError, match="expected one of these: study file"):
            verify_path(path)
    table = write_embeddings(tmp_path / "mine.parquet")
    with pytest.raises(OptionError, match="is a table, which has no store"):
        verify_path(table, repair=True)
