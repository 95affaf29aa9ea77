"""The store and its shards: every bit comes back, whatever happens to processes and disks."""

import errno
import json
import os
import random
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from callshot.encoders import store as stores
from callshot.encoders.store import Store, audio_key
from callshot.errors import InputError, OutputError

ENCODER = {"encoder": "mfcc", "rate_hz": 16000, "hop_s": 0.01, "top_db": None}


def name(number):
    return sha256(str(number).encode()).hexdigest()


def vectors_of(numbers, dimension=8):
    """Return the vectors of numbers, the same in a child process and in a test."""
    rows = [[number + i / 16 for i in range(dimension)] for number in numbers]
    return np.array(rows, np.float32)


def fill(folder, numbers, **options):
    """Add rows in one shard, and return the folder of the shards."""
    with Store(folder, ENCODER, **options) as store:
        add(store, numbers)
        return store.folder


def add(store, numbers):
    for number, vector in zip(numbers, vectors_of(numbers), strict=True):
        store.add(f"source {number}", name(number), vector)


def check_rows(folder, numbers):
    """Expect these rows and no others, bit by bit; return the notes."""
    with Store(folder, ENCODER) as store:
        keys = [name(number) for number in numbers]
        sources = [f"source {number}" for number in numbers]
        assert store.find(sources) == dict(zip(sources, keys, strict=True))
        assert all(map(store.has, keys))
        if keys:
            assert np.array_equal(store.vectors(keys), vectors_of(numbers))
        shards = [np.load(path) for path in store.folder.glob("shard-*.npy")]
        found = {key.decode() for shard in shards for key in shard["key"].tolist()}
        assert found - {""} == set(keys)
        return store.notes


def shard_files(folder):
    return sorted(folder.glob("*/shard-*.npy"))


def unfinished(folder):
    return sorted(folder.glob("*/.*.part*"))


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def child(script, *arguments, **options):
    """Start a Python process that can add rows to the store in the first argument."""
    head = f"""
import sys, time
from hashlib import sha256
from pathlib import Path
import numpy as np
from callshot.encoders.store import Store
from callshot.errors import OutputError
ENCODER = {ENCODER!r}
folder, arguments = Path(sys.argv[1]), sys.argv[2:]
def add(store, number):
    vector = np.array([number + i / 16 for i in range(8)], np.float32)
    store.add(f"source {{number}}", sha256(str(number).encode()).hexdigest(), vector)
"""
    command = [sys.executable, "-c", head + script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


def test_a_key_depends_on_the_samples_and_their_number():
    samples = np.array([0.5, -0.25, 0.0], np.float32)
    content = (3).to_bytes(8, "little") + samples.astype("<f4").tobytes()
    assert audio_key(samples) == sha256(content).hexdigest()
    assert audio_key(samples) == audio_key(samples.astype(">f4"))
    assert audio_key(samples) == audio_key(np.repeat(samples, 2)[::2])
    longer = np.append(samples, np.float32(0))
    others = [samples, samples[:2], longer, samples + np.float32(1e-7), -samples]
    assert len(set(map(audio_key, others))) == 5


bits = hnp.arrays(np.uint32, st.tuples(st.integers(1, 6), st.just(5))).map(
    lambda array: array.view(np.float32)
)


@settings(max_examples=20)
@given(vectors=bits)
def test_every_bit_of_finite_vectors_comes_back(tmp_path_factory, vectors):
    folder = tmp_path_factory.mktemp("store")
    vectors[~np.isfinite(vectors)] = -0.0
    with Store(folder, ENCODER) as store:
        for i, vector in enumerate(vectors):
            store.add(f"s{i}", f"k{i}", vector)
    order = [*range(len(vectors)), *reversed(range(len(vectors)))]
    with Store(folder, ENCODER) as store:
        result = store.vectors([f"k{i}" for i in order])
    assert result.dtype == np.float32
    assert np.array_equal(result.view(np.uint32), vectors[order].view(np.uint32))


@pytest.mark.parametrize("flush_each", [1, 7])
def test_sequences_of_any_length_come_back_in_any_order(tmp_path, flush_each):
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 9, 30)
    sequences = [rng.normal(size=(n, 4)).astype(np.float32) for n in lengths]
    with Store(tmp_path, ENCODER, sequences=True) as store:
        for i, sequence in enumerate(sequences):
            store.add(f"s{i}", f"k{i}", sequence.mean(axis=0), sequence)
            if i % flush_each == 0:
                store.flush()
    with Store(tmp_path, ENCODER, sequences=True) as store:
        for order in (range(30), rng.permutation(30), [5, 5, 5], []):
            result = list(store.sequences([f"k{i}" for i in order]))
            expected = [sequences[i] for i in order]
            assert all(map(np.array_equal, result, expected))
        means = store.vectors([f"k{i}" for i in range(30)])
    assert np.array_equal(means, [sequence.mean(axis=0) for sequence in sequences])


def test_rows_without_sequences_do_not_count_in_a_store_of_sequences(tmp_path):
    fill(tmp_path, [1, 2])
    with Store(tmp_path, ENCODER, sequences=True) as store:
        assert store.find(["source 1"]) == {}
        assert not store.has(name(1))
        store.add("source 1", name(1), vectors_of([1])[0], np.ones((3, 8), np.float32))
    with Store(tmp_path, ENCODER, sequences=True) as store:
        assert [one.shape for one in store.sequences([name(1)])] == [(3, 8)]
    assert check_rows(tmp_path, [1, 2]) == []


def test_rows_are_found_and_read_before_they_are_flushed(tmp_path):
    with Store(tmp_path, ENCODER) as store:
        buffer = vectors_of([3])
        store.add("source 3", name(3), buffer[0])
        buffer[:] = 99  # a model reuses its buffer
        add(store, range(5))
        assert store.find(["source 3", "source 9"]) == {"source 3": name(3)}
        assert np.array_equal(store.vectors([name(3)]), vectors_of([3]))
        # Reading writes nothing, so a full disk does not stop it.
        assert shard_files(tmp_path) == []
        store.flush()
        add(store, range(3, 8))
        keys = [name(i) for i in (7, 0, 3)]
        assert np.array_equal(store.vectors(keys), vectors_of([7, 0, 3]))
    assert len(shard_files(tmp_path)) == 2
    fill(tmp_path, range(8))  # nothing new
    assert len(shard_files(tmp_path)) == 2
    assert check_rows(tmp_path, range(8)) == []


def test_a_shard_is_flushed_by_size_and_by_age(tmp_path, monkeypatch):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(stores, "SHARD_BYTES", 10 * (stores.ROW_BYTES + 32))
    steps = [(0.0, range(9), 0), (0.0, [9, 10], 1), (29.0, [11], 1), (31.0, [12], 2)]
    with Store(tmp_path, ENCODER) as store:
        for now, numbers, count in steps:  # noqa: B007, read by `monotonic`
            add(store, numbers)
            assert len(shard_files(tmp_path)) == count


def test_each_fingerprint_has_its_folder_named_by_its_hash(tmp_path):
    folder = fill(tmp_path, [1])
    text = (folder / "fingerprint.json").read_bytes()
    assert json.loads(text).items() >= ENCODER.items()
    assert sha256(text).hexdigest()[:16] == folder.name
    assert fill(tmp_path, [1]) == folder
    with Store(tmp_path, dict(reversed(ENCODER.items()))) as store:
        assert store.has(name(1))
    with Store(tmp_path, ENCODER | {"top_db": 80.0}) as store:
        assert not store.has(name(1))


@pytest.mark.parametrize("text", [b"", b"{}"])
def test_a_fingerprint_other_than_that_of_the_folder_is_written_again(tmp_path, text):
    path = fill(tmp_path, [1]) / "fingerprint.json"
    whole = path.read_bytes()
    path.write_bytes(text)
    assert check_rows(tmp_path, [1]) == []
    assert path.read_bytes() == whole
    assert check_rows(tmp_path, [1]) == []


def test_a_shard_that_is_damaged_or_gone_after_opening_is_an_error(tmp_path):
    for damage in (True, False):
        fill(tmp_path, range(10))
        [shard] = shard_files(tmp_path)
        with Store(tmp_path, ENCODER) as store:
            if damage:
                np.save(shard, np.load(shard)[["source", "key"]].copy())
            else:
                shard.unlink()
            message = r"damaged \(.*run again" if damage else "is gone; run again"
            with pytest.raises(InputError, match=message):
                store.vectors([name(1)])
    fill(tmp_path, range(10))
    assert check_rows(tmp_path, range(10)) == []


def test_any_changed_byte_of_a_shard_is_noticed_when_the_store_is_opened(
    tmp_path, caplog
):
    for start in (0, 10):
        fill(tmp_path, range(start, start + 10))
    shard = shard_files(tmp_path)[1]
    whole = shard.read_bytes()
    rng = random.Random(6)
    for position in rng.sample(range(len(whole)), 25):
        raw = bytearray(whole)
        raw[position] ^= 1 << rng.randrange(8)
        shard.write_bytes(raw)
        caplog.clear()
        [note] = check_rows(tmp_path, range(10))
        assert "its content differs from the checksum in its name" in note
        assert caplog.messages == [f"note: {note}"]
    fill(tmp_path, range(20))
    assert check_rows(tmp_path, range(20)) == []


def test_a_process_verifies_a_shard_once_and_again_when_it_is_written_to(
    tmp_path, monkeypatch
):
    for start in (0, 10):
        fill(tmp_path, range(start, start + 10))
    verified: list[Path] = []
    find_damage = stores.find_damage

    def count(shard):
        verified.append(shard)
        return find_damage(shard)

    stores._find_damage.cache_clear()
    monkeypatch.setattr(stores, "find_damage", count)
    for _ in range(3):
        Store(tmp_path, ENCODER).close()
    assert sorted(verified) == shard_files(tmp_path)
    first = shard_files(tmp_path)[0]
    first.write_bytes(first.read_bytes().replace(name(1).encode(), b"1" * 64))
    [note] = check_rows(tmp_path, range(10, 20))
    assert str(first) in note


class FullDisk:
    """Stands in for `os.fsync`, and finds the disk full until there is room."""

    def __init__(self):
        self.room = False

    def __call__(self, descriptor):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_an_error_and_the_store_is_readable(tmp_path, monkeypatch):
    fill(tmp_path, range(5))
    disk = FullDisk()
    message = r"shard-.*cannot be written \(No space left .*free some disk space"
    with Store(tmp_path, ENCODER) as store, monkeypatch.context() as patched:
        patched.setattr(os, "fsync", disk)
        add(store, range(5, 8))
        with pytest.raises(OutputError, match=message):
            store.flush()
        other = Store(tmp_path, ENCODER)
        add(other, [9])
        with pytest.raises(ZeroDivisionError), other:
            raise ZeroDivisionError  # the first error is the one that is raised
        assert unfinished(tmp_path) == []
        assert np.array_equal(store.vectors([name(2)]), vectors_of([2]))
        disk.room = True
        store.flush()
    assert check_rows(tmp_path, range(8)) == []


BOTH = """
with Store(folder, ENCODER) as store:
    print("here", flush=True)
    sys.stdin.readline()
    for number in range(int(arguments[0]), int(arguments[1])):
        add(store, number)
        if number % 50 == 0:
            store.flush()
"""


def test_processes_that_add_at_once_lose_nothing(tmp_path):
    process = child(BOTH, tmp_path, 0, 1000, stdin=subprocess.PIPE)
    with Store(tmp_path, ENCODER) as store:
        assert process.stdout.readline() == "here\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        for start in range(500, 1500, 50):
            add(store, range(start, start + 50))
            store.flush()
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert check_rows(tmp_path, range(1500)) == []


def test_unfinished_files_are_kept_while_others_have_the_store_open(tmp_path):
    part = fill(tmp_path, [1]) / f".shard-1.{dead_pid()}-0123abcd.part.npy"
    part.write_bytes(b"NUMPY")
    first = Store(tmp_path, ENCODER)
    assert part.exists() == (sys.platform == "win32")
    part.write_bytes(b"NUMPY")
    second = Store(tmp_path, ENCODER)
    first.close()
    Store(tmp_path, ENCODER).close()
    assert part.exists()
    second.close()
    assert check_rows(tmp_path, [1]) == []
    assert part.exists() == (sys.platform == "win32")


LARGE = """
import resource
count, block = 5_000, np.random.default_rng(0).normal(size=(500, 1024)).astype(np.float32)
names = [sha256(str(number).encode()).hexdigest() for number in range(count)]
with Store(folder, ENCODER) as store:
    for number in range(count):
        store.add(names[number], names[number], block[number % 500])
with Store(folder, ENCODER) as store:
    store.vectors(names[:10])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    order = np.random.default_rng(1).permutation(count)
    vectors = store.vectors([names[i] for i in order])
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert np.array_equal(vectors, block[order % 500])
    print(growth * 1024 / vectors.nbytes)
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="reads the peak of the memory as Linux gives it"
)
def test_reading_vectors_takes_little_more_than_the_result(tmp_path):
    grown = float(child(LARGE, tmp_path).communicate(timeout=60)[0])
    # Of the 20 MB of the result: besides it there is a shard of 16 MiB.
    assert grown < 3


@pytest.fixture
def read_only(tmp_path, monkeypatch):
    """A store on read-only media, with a damaged shard."""
    for start in (0, 10):
        fill(tmp_path, range(start, start + 10))
    shard_files(tmp_path)[1].write_bytes(b"NUMPY")

    def refuse(*_, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "fsync", refuse)
    monkeypatch.setattr(Path, "replace", refuse)
    monkeypatch.setattr(Path, "write_bytes", refuse)
    return tmp_path


def test_a_store_on_read_only_media_is_read(read_only):
    before = sorted(read_only.rglob("*"))
    with Store(read_only, ENCODER) as store:
        assert store.has(name(3))
        assert not store.has(name(13))
        add(store, range(8, 13))
        store.flush()
        keys = [name(i) for i in (2, 12, 9, 10)]
        assert np.array_equal(store.vectors(keys), vectors_of([2, 12, 9, 10]))
    damaged, unwritten = store.notes
    assert "it is not used, but stays where it is (Read-only file system)" in damaged
    assert "cannot be written to; 3 new embeddings not stored" in unwritten
    assert sorted(read_only.rglob("*")) == before
