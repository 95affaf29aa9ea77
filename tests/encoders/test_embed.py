"""From segments to the store and the table: only what is missing is made, nothing is lost, nothing is doubled."""

import os
import random
import re
import shutil
import signal as signals
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from callshot.corpus.audio import load_audio
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.segment_table import read_segments
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.embed import Batching, embed_segments, make_table, segment_source
from callshot.encoders.encode import Encoder, open_encoder, pool
from callshot.encoders.store.store import open_store
from callshot.errors import InputError, OptionError, OutputError
from callshot.records import Segment
from callshot.study.file_steps import embed_files, segment_files
from callshot.tables.embedding_tables import table_corpus
from sounds import record, record_badly
from test_cli import run


def segment(path: str, start_s: float = 0.0, end_s: float = 1.0, **more: object) -> Segment:
    name = f"{path}@{start_s}-{end_s}"
    return Segment(
        name, path, path, start_s, end_s, 0.0, "roar", ("roar",), 16000, "mean", -3.0, None, more
    )  # type: ignore[arg-type]


class Counted:
    """An encoder that counts what goes through its model."""

    def __init__(self, name: str = "mfcc") -> None:
        self.whole = open_encoder(find_encoder(name))
        self.seen = 0

    @property
    def encoder(self) -> Encoder:
        def model(signal):
            self.seen += 1
            return self.whole.model(signal)

        return Encoder(self.whole.spec, model, self.whole.fingerprint)


def embedded(folder, segments, encoder, store="store"):
    with open_store(folder / store, encoder.fingerprint) as kept:
        keys, rejects = embed_segments(
            segments, folder, partial(load_audio, folder, threads=2), encoder, kept
        )
        return keys, rejects, kept.vectors([key for key in keys if key is not None])


@pytest.fixture
def library(tmp_path):
    for n in range(3):
        record(tmp_path / f"r{n}.wav", seconds=4, rate=16000, seed=n)
    return tmp_path


def test_a_second_run_encodes_nothing_and_gives_the_same(library):
    segments = [
        segment(f"r{n}.wav", start, start + 1.5) for n in range(3) for start in (0.0, 1.0, 2.0)
    ]
    counted = Counted()
    first = embedded(library, segments, counted.encoder)
    assert counted.seen == 9
    again = embedded(library, segments[::-1], counted.encoder)
    assert counted.seen == 9
    assert first[0] == again[0][::-1]
    np.testing.assert_array_equal(first[2], again[2][::-1])


def test_a_longer_list_encodes_only_what_is_new(library):
    counted = Counted()
    embedded(library, [segment("r0.wav")], counted.encoder)
    embedded(library, [segment("r0.wav"), segment("r1.wav")], counted.encoder)
    assert counted.seen == 2


def test_the_same_audio_in_another_file_is_encoded_once(library):
    (library / "copy.wav").write_bytes((library / "r0.wav").read_bytes())
    counted = Counted()
    keys = embedded(library, [segment("r0.wav"), segment("copy.wav")], counted.encoder)[0]
    assert keys[0] == keys[1]
    embedded(library, [segment("copy.wav", 0, 1)], counted.encoder)
    assert counted.seen <= 2  # both may wait for the model at once


def test_after_a_part_the_rest_gets_its_own_vectors(library):
    segments = [segment(f"r{n % 3}.wav", n / 10, n / 10 + 1) for n in range(12)]
    encoder = Counted().encoder
    embedded(library, segments[1::3], encoder)
    keys, _, vectors = embedded(library, segments, encoder)
    fresh = embedded(library, segments, encoder, "another store")
    assert keys == fresh[0]
    np.testing.assert_array_equal(vectors, fresh[2])
    for one, vector in zip(segments, vectors, strict=True):
        signal = next(iter(load_audio(library, [one])))[1]
        np.testing.assert_array_equal(vector, encoder.encode([signal])[0][0])


@pytest.mark.parametrize(
    "change",
    [
        {"start_s": 0.5},
        {"end_s": 1.5},
        {"collar_s": 0.2},
        {"channel_rule": "2"},
        {"level_dbfs": -6.0},
        {"source_rate_hz": 8000.0},
    ],
)
def test_every_way_of_reading_a_segment_has_a_vector_of_its_own(library, change):
    record(library / "two.wav", seconds=4, rate=16000, channels=2)
    plain = segment("two.wav")
    encoder = Counted().encoder
    keys = (
        embedded(library, [plain], encoder)[0]
        + embedded(library, [replace(plain, **change)], encoder)[0]
    )
    assert keys[0] != keys[1]


def test_the_same_samples_at_another_rate_are_other_audio(library):
    encoder = Encoder(
        find_encoder("birdnet-v2.4"),
        lambda windows: np.repeat(windows[:, :1], 1024, axis=1),
        {"encoder": "fake"},
    )
    slow = replace(segment("r0.wav", 0, 1), level_dbfs=None)
    fast = replace(slow, rate_hz=48000, source_rate_hz=48000.0, end_s=1 / 3)
    keys = embedded(library, [slow, fast], encoder)[0]
    assert keys[0].partition("@")[0] == keys[1].partition("@")[0]
    assert keys[0] != keys[1]


@pytest.mark.parametrize("name", ["mfcc", "birdnet-v2.4"])
def test_a_segment_that_the_model_refuses_is_a_reject_and_the_rest_goes_on(library, name):
    spec = find_encoder(name)

    def model(items):
        vectors = (
            np.zeros((1 if items.ndim == 1 else len(items), spec.dimension), np.float32)
            + items.flat[0]
        )
        return np.full_like(vectors, np.nan) if (np.abs(items) > 0.9).any() else vectors

    record(library / "loud.wav", seconds=4, rate=16000)
    segments = [
        replace(segment(f"r{n % 3}.wav", n / 20, n / 20 + 1), level_dbfs=-20.0) for n in range(20)
    ]
    segments.insert(7, replace(segment("loud.wav"), level_dbfs=0.0))
    keys, rejects, vectors = embedded(library, segments, Encoder(spec, model, {"encoder": name}))
    assert [(reject.file, reject.row) for reject in rejects] == [("loud.wav", 8)]
    assert keys[7] is None
    assert len(vectors) == 20


def test_audio_that_is_known_from_elsewhere_is_read_once_more_and_no_more(library):
    (library / "copy.wav").write_bytes((library / "r0.wav").read_bytes())
    encoder = Counted().encoder
    embedded(library, [segment("r0.wav")], encoder)
    embedded(library, [segment("copy.wav")], encoder)
    with open_store(library / "store", encoder.fingerprint) as kept:
        embed_segments(
            [segment("copy.wav")],
            library,
            lambda wanted: pytest.fail("read again") if wanted else (),
            encoder,
            kept,
        )


def test_audio_that_changed_in_its_file_is_encoded_anew(library):
    counted = Counted()
    first = embedded(library, [segment("r0.wav")], counted.encoder)[0]
    record(library / "r0.wav", seconds=4, rate=16000, seed=9)
    os.utime(library / "r0.wav", ns=(1, 1))
    assert embedded(library, [segment("r0.wav")], counted.encoder)[0] != first
    assert counted.seen == 2


def test_one_bad_file_among_many_is_a_reject_and_the_rest_goes_on(library):
    record_badly(library / "bad.wav", "text")
    segments = [segment(f"r{n % 3}.wav", n / 20, n / 20 + 1) for n in range(40)]
    segments.insert(20, segment("bad.wav"))
    keys, rejects, vectors = embedded(library, segments, Counted().encoder)
    assert (keys.count(None), keys[20], len(vectors)) == (1, None, 40)
    assert [(reject.file, reject.row) for reject in rejects] == [("bad.wav", 21)]


def test_audio_that_comes_again_and_again_is_one_shard(library):
    segments = [
        segment("r0.wav"),
        *(segment(f"r{n}.wav", end_s=1 + n / 9) for n in (0, 1, 2, 0, 1, 2)),
    ]
    counted = Counted()
    assert len(set(embedded(library, segments, counted.encoder)[0])) == 3
    assert (counted.seen, len(shards(library / "store"))) == (3, 1)


def watched(work):
    """Return an encoder whose model is told first, in a list, how much has been made ready for it."""
    ready = []

    class Watched(Encoder):
        def prepare(self, signal, rate_hz):
            ready.append(len(signal))
            return super().prepare(signal, rate_hz)

    def model(windows):
        work(ready)
        return np.repeat(windows[:, :1], 1024, axis=1)

    return Watched(find_encoder("birdnet-v2.4"), model, {"encoder": "watched"})


def ahead(library, encoder, count=12):
    segments = [segment(f"r{n % 3}.wav", n / 10, n / 10 + 1) for n in range(count)]
    with open_store(library / "store", encoder.fingerprint) as kept:
        embed_segments(segments, library, partial(load_audio, library), encoder, kept)


def test_windows_are_made_ready_while_the_model_works(library):
    seen = []

    def wait(ready):
        until, wanted = time.monotonic() + 5, min(12, len(seen) + 3)
        while len(ready) < wanted and time.monotonic() < until:
            time.sleep(0.001)
        seen.append(len(ready) >= wanted)

    ahead(library, watched(wait))
    assert all(seen)


def test_no_more_is_made_ready_than_may_wait(library, monkeypatch):
    monkeypatch.setattr(
        "callshot.encoders.embed.AHEAD_SAMPLES", 2 * 48000
    )  # two of 1 s, and one more
    monkeypatch.setattr("callshot.encoders.embed.LARGEST_BATCH", 1)
    seen = []

    def wait(ready):
        time.sleep(0.01)
        seen.append(len(ready))

    ahead(library, watched(wait), 30)
    assert max(ready - used for used, ready in enumerate(seen)) <= 5


def test_a_model_that_breaks_leaves_no_thread_behind(library):
    def fail(ready):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ahead(library, watched(fail))
    assert not any(thread.name.startswith("callshot-") for thread in threading.enumerate())


def test_shares_of_the_work_add_up_to_one_with_the_pace(library):
    told: list[tuple[float, str]] = []
    encoder = Counted().encoder
    segments = [segment(f"r{n}.wav") for n in range(3)]
    embedded(library, segments[:1], encoder)
    with open_store(library / "store", encoder.fingerprint) as kept:
        read = partial(load_audio, library)
        embed_segments(
            segments, library, read, encoder, kept, lambda share, what: told.append((share, what))
        )
    assert sum(share for share, _ in told) == pytest.approx(1)
    assert "segments/s" in told[-1][1]
    assert "h of audio per hour" in told[-1][1]


def test_batches_grow_while_that_is_faster_and_then_stay():
    batching = Batching()
    for speed in (1, 1.9, 3.5, 3.4):  # windows a second at sizes 1, 2, 4, 8
        for _ in range(3):
            batching.learn(batching.size, batching.size / speed)
    assert (batching.size, batching.settled) == (4, True)
    batching.learn(4, 1e-9)
    assert batching.size == 4


def test_folds_are_those_of_all_segments_or_none(library):
    two = [segment("r0.wav", fold=0), segment("r1.wav", fold=1)]
    table = make_table("mfcc", two, np.zeros((2, 3), np.float32), library)
    assert table.fold is not None
    assert table.fold.tolist() == [0, 1]
    with pytest.raises(InputError, match=r"column fold: empty for r1\.wav"):
        make_table("mfcc", [two[0], segment("r1.wav")], np.zeros((2, 3), np.float32), library)


@pytest.fixture
def cut(library):
    rows = "".join(f"r{n % 3}.wav,{n / 100},{n / 100 + 1.2},label {n % 2}\n" for n in range(200))
    (library / "calls.csv").write_text("recording,start_s,end_s,label\n" + rows)
    segment_files(library, library / "segments", library / "calls.csv")
    return library / "segments" / "segments.parquet"


def test_the_table_has_what_evaluate_needs_and_the_sequences_lie_beside_it(cut, tmp_path):
    table, rejects = embed_files(
        cut, tmp_path / "mfcc.parquet", "mfcc", sequences=True, store=tmp_path / "store"
    )
    assert (len(table), rejects) == (200, [])
    frame = pl.read_parquet(tmp_path / "mfcc.parquet")
    assert set(frame.columns) == {"recording", "label", "segment", "labels", "embedding"}
    behind = pl.read_parquet(tmp_path / "mfcc.sequences.parquet")
    assert behind["frames"].unique().to_list() == [121]
    mean = behind["sequence"][3].to_numpy().reshape(121, 40).mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(frame["embedding"][3].to_numpy(), mean, rtol=1e-6)


def test_recordings_that_were_moved_are_named_anew_or_told(cut, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    for n in range(3):
        (tmp_path / f"r{n}.wav").rename(tmp_path / "elsewhere" / f"r{n}.wav")
    with pytest.raises(InputError, match="no segment could be embedded from"):
        embed_files(cut, tmp_path / "mfcc.parquet", "mfcc", store=tmp_path / "store")
    table, _ = embed_files(
        cut,
        tmp_path / "mfcc.parquet",
        "mfcc",
        audio=tmp_path / "elsewhere",
        store=tmp_path / "store",
    )
    assert len(table) == 200


def test_choices_and_the_name_of_the_corpus_reach_the_table(cut, tmp_path):
    table, _ = embed_files(
        cut, tmp_path / "a.parquet", "mfcc", {"coefficients": "13"}, store=tmp_path / "store"
    )
    assert (table.encoder, table.vectors.shape) == ("mfcc[coefficients=13]", (200, 13))
    segments = pl.read_parquet(cut)
    facts = {"audio": str(tmp_path), "corpus": "mine"}
    segments.write_parquet(cut, metadata=facts)
    embed_files(cut, tmp_path / "b.parquet", "random", store=tmp_path / "store")
    assert table_corpus(tmp_path / "b.parquet") == "mine"
    assert sorted(path.name for path in tmp_path.glob("*.rejects.csv")) == []


@pytest.mark.parametrize(
    "out", ["segments/segments.parquet", "x.csv", "gone/x.parquet", "segments"]
)
def test_a_place_where_no_table_can_be_is_told_before_any_work(cut, tmp_path, out, monkeypatch):
    monkeypatch.setattr(
        "callshot.study.file_steps.open_encoder", lambda *_, **__: pytest.fail("opened")
    )
    before = cut.read_bytes()
    with pytest.raises((OutputError, OptionError)):
        embed_files(cut, tmp_path / out, "mfcc", store=tmp_path / "store")
    assert cut.read_bytes() == before


def test_segments_at_a_rate_that_the_encoder_does_not_take_are_told_before_any_work(library):
    (library / "calls.csv").write_text("recording,start_s,end_s,label\nr0.wav,0,2,roar\n")
    segment_files(
        library, library / "cut", library / "calls.csv", options=SegmentationOptions(rate_hz=8000)
    )
    with pytest.raises(
        InputError,
        match=r"is cut at 8000 Hz, and mfcc wants 16000; cut segments anew with --rate 16000",
    ):
        embed_files(
            library / "cut" / "segments.parquet",
            library / "x.parquet",
            "mfcc",
            store=library / "store",
        )


def embedding(cut, out, store):
    words = ["embed", cut, "-e", "mfcc", "-o", out, "--store", store, "--quiet"]
    return [sys.executable, "-m", "callshot", *map(str, words)]


# The same, with its own pace of writing, and a limit on the size of files.
CHILD = """
import sys
from callshot.cli import main
from callshot.encoders.store import store
store.FLUSH_AFTER_S, limit = float(sys.argv.pop(1)), int(sys.argv.pop(1))
if limit:
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
main()
"""


def failing(cut, out, store, wait_s=0.0, limit=0):
    """Embed where there is no room, and return what is said; each segment is written at once, or after `wait_s`."""
    command = [
        sys.executable,
        "-c",
        CHILD,
        str(wait_s),
        str(limit),
        *embedding(cut, out, store)[3:],
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


@pytest.fixture
def encoded(monkeypatch):
    """What is encoded in this process, an item for each segment."""
    seen = []
    monkeypatch.setattr(
        "callshot.encoders.embed.pool", lambda sequence: seen.append(1) or pool(sequence)
    )
    return seen


def shards(store):
    return set(store.glob("*/shard-*.parquet"))


def held(store):
    """Count the segments in a store as any tool would."""
    return (
        pl.read_parquet(sorted(shards(store)), columns=["source"])["source"].n_unique()
        if shards(store)
        else 0
    )


@pytest.fixture
def whole(cut, tmp_path):
    """The table of an undisturbed run."""
    embed_files(cut, tmp_path / "whole.parquet", "mfcc", store=tmp_path / "undisturbed")
    return (tmp_path / "whole.parquet").read_bytes()


# Forks a process for each line it is sent, after the imports: 20 processes need not wait for them.
FORKS = """
import os, sys
from pathlib import Path
import numpy as np
from callshot.encoders import catalogue, encode
from callshot.encoders.store import store
from callshot.study.file_steps import embed_files
cut, out, folder = map(Path, sys.argv[1:])
encode.open_encoder(catalogue.find_encoder("mfcc")).encode([np.zeros(16000, np.float32)])
store.FLUSH_AFTER_S = 0.0
for _ in sys.stdin:
    if (pid := os.fork()) == 0:
        embed_files(cut, out, "mfcc", store=folder)
        os._exit(0)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


def kill_one(forks, store, chance):
    """Start embedding and end it at once, when it has written some shards, or while it merges them."""
    before, wanted = shards(store), chance.randrange(8)
    forks.stdin.write("\n")
    forks.stdin.flush()
    pid = int(forks.stdout.readline())
    with suppress(ProcessLookupError):  # all that was missing was less than wanted
        while len(shards(store) - before) < wanted:
            os.kill(pid, 0)
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.01 if wanted else 0.2))
        os.kill(pid, signals.SIGKILL)
    return int(forks.stdout.readline())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no SIGKILL")
def test_killed_at_any_moment_and_run_again_the_table_is_the_same_byte_for_byte(
    cut, tmp_path, whole, encoded
):
    chance, store, out, parts = (
        random.Random(4),
        tmp_path / "store",
        tmp_path / "killed.parquet",
        [],
    )
    command = [sys.executable, "-c", FORKS, cut, out, store]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as forks:
        for _ in range(20):
            status = kill_one(forks, store, chance)
            parts.append(held(store) if status == signals.SIGKILL else 200)
    assert sum(0 < part < 200 for part in parts) >= 5
    assert parts == sorted(parts)  # what was written once is never lost
    embed_files(cut, out, "mfcc", store=store)
    assert len(encoded) == 200 - parts[-1]
    assert out.read_bytes() == whole


def test_two_processes_at_once_lose_and_double_nothing(cut, tmp_path):
    children = [
        subprocess.Popen(embedding(cut, tmp_path / f"{n}.parquet", tmp_path / "store"))
        for n in range(2)
    ]
    assert [child.wait() for child in children] == [0, 0]
    frames = [pl.read_parquet(tmp_path / f"{n}.parquet") for n in range(2)]
    assert frames[0].equals(frames[1])
    assert frames[0]["segment"].n_unique() == frames[0].height == 200


def test_one_recording_among_a_thousand_that_goes_bad_is_told_and_the_others_are_embedded(
    tmp_path, capsys
):
    for n in range(1000):
        record(tmp_path / "audio" / f"r{n:03d}.wav", seconds=1.1, rate=16000, seed=n)
    rows = "".join(f"r{n:03d}.wav,0,1.1,label {n % 2}\n" for n in range(1000))
    (tmp_path / "calls.csv").write_text("recording,start_s,end_s,label\n" + rows)
    run("segment", tmp_path / "audio", "-a", tmp_path / "calls.csv", "--out", tmp_path, "--quiet")
    bad, out = tmp_path / "audio" / "r500.wav", tmp_path / "mfcc.parquet"
    bad.write_bytes(bad.read_bytes()[:20])
    run(
        "embed",
        tmp_path / "segments.parquet",
        "-e",
        "mfcc",
        "-o",
        out,
        "--store",
        tmp_path / "store",
    )
    told, said = capsys.readouterr().out, "r500.wav: libsndfile cannot read it as audio"
    assert f"left out: row 501: {said}" in told
    assert f"999 of 1000 segments embedded in {out}" in told
    segments = pl.read_parquet(tmp_path / "segments.parquet")["segment"].to_list()
    assert pl.read_parquet(out)["segment"].to_list() == segments[:500] + segments[501:]
    (reject,) = pl.read_csv(tmp_path / "mfcc.rejects.csv").to_dicts()
    assert (reject["file"], reject["row"], reject["reason"].startswith(said)) == (
        "r500.wav",
        501,
        True,
    )


@pytest.fixture
def disk(tmp_path):
    """A disk of 64 KiB, which only the process that keeps it has; the others see it through that process."""
    folder, script = (
        tmp_path / "disk",
        'mount -t tmpfs -o size=64k small "$0" && echo ready && read -r _',
    )
    folder.mkdir()
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, folder]
    try:
        keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare here to make a small disk with")
    with keeper:
        if keeper.stdout.readline() != "ready\n":
            pytest.skip("nobody may make a small disk here")
        yield Path(f"/proc/{keeper.pid}/root{folder}")
        keeper.stdin.close()


def test_a_disk_that_fills_up_is_told_and_the_store_goes_on_from_there(
    cut, tmp_path, disk, whole, encoded
):
    out, wanted = (
        tmp_path / "mfcc.parquet",
        r"cannot be written \(No space left on device\); .*free some disk space.*\n",
    )
    said = failing(cut, out, disk / "store")
    assert re.fullmatch(rf"callshot: {re.escape(str(disk))}/store/\S+: {wanted}", said)
    assert not out.exists()
    sources = [segment_source(tmp_path, one) for one in read_segments(cut)[0]]
    with open_store(disk / "store", Counted().encoder.fingerprint) as store:
        keys = store.find(sources)
        assert np.isfinite(store.vectors(list(keys.values()))).all()
        assert store.notes == []
    assert 0 < len(keys) < 200
    shutil.copytree(disk / "store", tmp_path / "roomy")
    embed_files(cut, out, "mfcc", store=tmp_path / "roomy")
    assert len(encoded) == 200 - len(keys)
    assert out.read_bytes() == whole


def test_a_disk_that_is_full_when_the_table_is_written_costs_nothing_but_the_table(
    cut, tmp_path, disk, whole, encoded
):
    out, store = disk / "mfcc.parquet", tmp_path / "store"
    out.write_bytes(b"an earlier table")
    (disk / "filler").write_bytes(bytes(48 * 1024))
    said = failing(cut, out, store, wait_s=30)
    wanted = r"cannot be written \(.*No space left on device.*\)\n"
    assert re.fullmatch(rf"callshot: {re.escape(str(out))}: {wanted}", said)
    assert sorted(path.name for path in disk.iterdir()) == ["filler", "mfcc.parquet"]
    assert out.read_bytes() == b"an earlier table"
    (disk / "filler").unlink()
    embed_files(cut, out, "mfcc", store=store)
    assert encoded == []
    assert out.read_bytes() == whole


@pytest.mark.skipif(os.name == "nt", reason="Windows has no limit on the size of files")
@pytest.mark.parametrize(
    ("wait_s", "place", "again"), [(30, r"store/\S+/shard-\S+", 200), (0, r"mfcc\.parquet", 0)]
)
def test_a_limit_on_files_is_told_whether_the_store_or_the_table_meets_it(
    cut, tmp_path, whole, encoded, wait_s, place, again
):
    out, store, wanted = (
        tmp_path / "mfcc.parquet",
        tmp_path / "store",
        r"cannot be written \(.*File too large.*\n",
    )
    said = failing(cut, out, store, wait_s=wait_s, limit=16_000)
    assert re.fullmatch(rf"callshot: {re.escape(str(tmp_path))}/{place}: {wanted}", said)
    assert (held(store), out.exists()) == (200 - again, False)
    embed_files(cut, out, "mfcc", store=store)
    assert len(encoded) == again
    assert out.read_bytes() == whole
