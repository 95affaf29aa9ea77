"""What a bucket is asked for: few requests, and results that are complete after a second run."""

import io

import pytest

from callshot import index_recordings, learn
from callshot.errors import OutputError
from callshot.results import open_output_folder
from callshot.storage import RangeReader, to_path
from callshot.storage.requests import forget_ranges
from sounds import record
from stores import BUCKET, upload

URL = f"s3://{BUCKET}"


def list_requests(bucket, act):
    """Return method and path of the requests of an act."""
    asked = []

    def note(method, path, number):
        asked.append((method, path))
        return ""

    bucket.proxy.fault = note
    act()
    bucket.proxy.reset()
    return asked


def test_a_recording_takes_five_requests_and_its_audio_two(bucket, tmp_path):
    counts = []
    for place, number in (("few", 1), ("many", 4)):
        for seed in range(number):
            record(tmp_path / place / f"{seed}.wav", 20, 16000, seed=seed)
        upload(bucket, tmp_path / place, f"{BUCKET}/{place}")
        asked = list_requests(
            bucket,
            lambda place=place: index_recordings(
                f"{URL}/{place}", f"{URL}/index-{place}", "mfcc", window_s=1
            ),
        )
        counts.append(len(asked))
        audio = [method for method, path in asked if path.endswith(".wav")]
        assert audio == ["GET"] * 2 * number
    assert counts[1] - counts[0] <= 5 * 3


def test_learn_asks_once_for_what_a_recording_is(bucket, tmp_path):
    folder = tmp_path / "in"
    for seed in range(2):
        record(folder / f"{seed}.wav", 12, 16000, seed=seed)
        (folder / f"{seed}.txt").write_text("5\t6\tone\n9\t10\tother\n")
    upload(bucket, folder, f"{BUCKET}/in")
    store = tmp_path / "store"
    asked = list_requests(
        bucket, lambda: learn(f"{URL}/in", "mfcc", window_s=1, store=store)
    )
    audio = [method for method, path in asked if path.endswith(".wav")]
    assert audio.count("HEAD") == 2
    assert audio.count("GET") <= 2 * 2


class StoredBytes:
    """A file of 100 bytes in a store, whose version stays the same when it is written again."""

    st_size = 100
    st_mtime_ns = 1

    def __init__(self, byte, *, is_exact):
        self.byte = byte
        self.is_exact = is_exact

    def __str__(self):
        return "https://server/x.wav"

    def stat(self):
        return self

    def with_info(self):
        return self

    def has_exact_version(self):
        return self.is_exact

    def open_stream(self):
        return io.BytesIO(self.byte * 100)


@pytest.mark.parametrize(("is_exact", "expected"), [(True, b"a"), (False, b"b")])
def test_ranges_are_kept_only_where_every_change_gives_another_version(
    is_exact, expected
):
    forget_ranges()
    for byte in (b"a", b"b"):
        reader = RangeReader(StoredBytes(byte, is_exact=is_exact))
        reader.seek(50)
        last = reader.read(1)
    forget_ranges()
    assert last == expected


def test_a_file_that_became_shorter_while_it_was_read_is_an_error():
    forget_ranges()
    reader = RangeReader(StoredBytes(b"", is_exact=True))
    with pytest.raises(OSError, match="became shorter while it was read"):
        reader.read(1)


def write_results(
    text, out, *, names=("a.csv", "b.csv"), provenance="facts.json", owner=""
):
    def make_files(folder):
        for name in names:
            (folder / name).write_text(f"{text} {name}")
        return list(names)

    with open_output_folder(to_path(out), names, provenance, owner=owner) as output:
        output.write(make_files, {"version": 1})


@pytest.mark.parametrize(
    ("earlier", "refused"), [("", "b.csv"), ("first", "facts.json")]
)
def test_results_that_were_refused_half_way_are_completed_by_the_next_run(
    bucket, earlier, refused
):
    out = f"{URL}/out"
    if earlier:
        write_results(earlier, out)
    bucket.proxy.fault = lambda method, path, number: (
        "403" if method == "PUT" and path.endswith(f"out/{refused}") else ""
    )
    with pytest.raises(
        OutputError, match=r"^s3://recorders/out: not all .*run the"
    ) as e:
        write_results("second", out)
    assert "\n" not in str(e.value)
    bucket.proxy.reset()
    write_results("third", out)
    names = [name.removeprefix(f"{BUCKET}/out/") for name in bucket.find(out)]
    assert names == ["a.csv", "b.csv", "facts.json"]
    assert bucket.cat_file(f"{out}/b.csv") == b"third b.csv"


def test_a_set_of_many_results_is_listed_a_few_times(bucket):
    out = f"{URL}/out"
    names = tuple(f"{number}.csv" for number in range(8))
    write_results("first", out, names=names)
    asked = list_requests(bucket, lambda: write_results("second", out, names=names))
    listings = [path for _, path in asked if "list-type" in path]
    assert len(listings) <= 3
    assert len(asked) <= 2 * len(names) + 20


# Results in a store in memory, which are written as those in a bucket are

OUT = "memory://out"


def list_names(memory):
    return [name.removeprefix("/out/") for name in memory.find("/out")]


def test_an_edited_file_and_files_of_others_are_kept(memory):
    write_results("first", OUT)
    memory.pipe_file("/out/a.csv", b"by hand")
    write_results("second", OUT)
    assert memory.cat_file("/out/a.csv.before") == b"by hand"
    memory.pipe_file("/out/c.csv", b"of somebody else")
    with pytest.raises(OutputError, match=r"c.csv exists and was not written"):
        write_results("third", OUT, names=("a.csv", "c.csv"))


def test_results_are_written_where_nothing_may_be_removed(memory, refuse):
    with refuse("rm_file", "out/"):
        write_results("first", OUT)
        write_results("second", OUT)
        assert memory.cat_file("/out/b.csv") == b"second b.csv"
    for name in (".callshot-write-test", "a.csv", "b.csv", "facts.json"):
        assert name in list_names(memory)
    write_results("third", OUT)
    assert list_names(memory) == ["a.csv", "b.csv", "facts.json"]


@pytest.mark.parametrize(
    ("provenance", "owner"), [("other.json", ""), ("facts.json", "another command")]
)
def test_what_another_set_left_unfinished_is_neither_used_nor_removed(
    memory, refuse, provenance, owner
):
    with refuse("put_file", "out/facts.json"), pytest.raises(OutputError):
        write_results("first", OUT)
    (marker,) = (name for name in list_names(memory) if name.endswith(".json"))
    content = memory.cat_file(f"/out/{marker}")
    options = {"provenance": provenance, "owner": owner}
    write_results("other", OUT, names=("c.csv",), **options)
    assert list_names(memory) == [marker, "a.csv", "b.csv", "c.csv", provenance]
    assert memory.cat_file(f"/out/{marker}") == content
    with pytest.raises(OutputError, match=r"a\.csv exists and was not written"):
        write_results("other", OUT, names=("a.csv",), **options)


def test_files_of_all_runs_that_ended_early_are_replaced(memory, refuse):
    with refuse("put_file", "out/facts.json"), pytest.raises(OutputError):
        write_results("first", OUT, names=("a.csv", "b.csv"))
    with refuse("put_file", "out/b.csv", "out/c.csv"), pytest.raises(OutputError):
        write_results("second", OUT, names=("b.csv", "c.csv"))
    assert "a.csv" in list_names(memory)  # removed only after all uploads
    write_results("third", OUT, names=("b.csv", "d.csv"))
    assert list_names(memory) == ["b.csv", "d.csv", "facts.json"]
