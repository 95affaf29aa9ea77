"""What a bucket is asked for: few requests, and results that are complete after a second run."""

from pathlib import Path
from typing import Any

import pytest

from callshot import index_recordings
from callshot.errors import OutputError
from callshot.report.output_folder import open_output_folder
from callshot.storage import RangeReader, to_path
from sounds import record
from stores import BUCKET, upload

URL = f"s3://{BUCKET}"
OUT = f"{BUCKET}/out"


def list_requests(bucket: Any, act: Any) -> list[tuple[str, str]]:
    """Return method and path of the requests of an act."""
    asked = []

    def note(method: str, path: str, number: int) -> str:
        asked.append((method, path))
        return ""

    bucket.proxy.fault = note
    act()
    bucket.proxy.reset()
    return asked


def test_a_recording_takes_seven_requests_and_its_audio_two(
    bucket: Any, tmp_path: Path
) -> None:
    counts = []
    for place, number in (("few", 2), ("many", 6)):
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
    assert counts[1] - counts[0] <= 7 * 4


def test_a_range_is_as_long_as_what_is_expected(
    bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.pipe_file(f"{BUCKET}/x", bytes(10**6))
    ranges = []
    real = RangeReader._request

    def request(self: RangeReader, start: int, end: int) -> bytes:
        ranges.append(end - start)
        return real(self, start, end)

    monkeypatch.setattr(RangeReader, "_request", request)
    with to_path(f"{URL}/x").open("rb") as stream:
        stream.expect(0.2)
        stream.seek(300_000)
        while stream.tell() < 500_000:
            stream.read(8000)
    assert ranges == [2**14, 200_000 - 2**14]


def write_results(text: str, *, names: tuple[str, ...] = ("a.csv", "b.csv")) -> None:
    def make_files(folder: Path) -> list[str]:
        for name in names:
            (folder / name).write_text(f"{text} {name}")
        return list(names)

    with open_output_folder(to_path(f"{URL}/out"), names, "facts.json") as output:
        output.write(make_files, {"version": 1})


@pytest.mark.parametrize("earlier", ["", "first"])
@pytest.mark.parametrize("refused", ["b.csv", "facts.json"])
def test_results_that_were_refused_half_way_are_completed_by_the_next_run(
    bucket: Any, earlier: str, refused: str
) -> None:
    if earlier:
        write_results(earlier)
    bucket.proxy.fault = lambda method, path, number: (
        "403" if method == "PUT" and path.endswith(f"out/{refused}") else ""
    )
    with pytest.raises(
        OutputError, match=r"^s3://recorders/out: not all .*run the"
    ) as e:
        write_results("second")
    assert "\n" not in str(e.value)
    bucket.proxy.reset()
    write_results("third")
    names = [name.removeprefix(f"{OUT}/") for name in bucket.find(OUT)]
    assert names == ["a.csv", "b.csv", "facts.json"]
    assert bucket.cat_file(f"{OUT}/b.csv") == b"third b.csv"


def test_a_file_that_was_edited_after_a_refused_run_is_kept(bucket: Any) -> None:
    bucket.proxy.fault = lambda method, path, number: (
        "403" if method == "PUT" and path.endswith("out/b.csv") else ""
    )
    with pytest.raises(OutputError):
        write_results("first")
    bucket.proxy.reset()
    bucket.pipe_file(f"{OUT}/a.csv", b"by hand")
    write_results("second")
    assert bucket.cat_file(f"{OUT}/a.csv.before") == b"by hand"
    bucket.pipe_file(f"{OUT}/c.csv", b"of somebody else")
    with pytest.raises(OutputError, match=r"c.csv exists and was not written"):
        write_results("third", names=("a.csv", "c.csv"))


def test_a_set_of_many_results_is_listed_a_few_times(bucket: Any) -> None:
    names = tuple(f"{number}.csv" for number in range(12))
    write_results("first", names=names)
    asked = list_requests(bucket, lambda: write_results("second", names=names))
    listings = [path for _, path in asked if "list-type" in path]
    assert len(listings) <= 3
    assert len(asked) <= 2 * len(names) + 20
