"""A synthetic corpus, written: a folder and a seed come in; recordings, annotations and a README go out."""

import io
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from callshot.corpus.synthetic.call_synthesis import (
    Caller,
    Random,
    Samples,
    draw_caller,
    level_db,
    sing,
)
from callshot.corpus.synthetic.plan import Call, Plan, plan_corpus, stream
from callshot.corpus.synthetic.soundscape import draw_scene, hear
from callshot.corpus.synthetic.tables import raven_table, textgrid
from callshot.errors import OptionError, OutputError
from callshot.records import Progress, no_progress

RATES_HZ = (4000, 192000)
FOLDERS = ("recordings", "raven", "textgrid")
LEVEL_SPREAD_DB = 2.5  # how much calls of one type differ in level

README = """# A synthetic corpus of elephant-like calls

Made by callshot with seed {seed}, scale {scale}, at {rate_hz} Hz:
{recordings} recordings, {calls} calls, {minutes:.0f} min.
No elephant was recorded: every call is synthesised. It is here to learn and test callshot on; results on it say nothing
about elephants.

    recordings/   FLAC, 16 bit, some with two channels (the second is a weaker, later copy of the first)
    raven/        the calls as Raven selection tables, one for each recording, some with two views of each selection
    textgrid/     the same calls as Praat TextGrids: tiers `call` and, where calls overlap, `call 2`;
                  the tier `notes` holds spoken notes, which are not calls

Segment it with

    callshot segment FOLDER/recordings --annotations FOLDER/raven --out SEGMENTS

where FOLDER is the folder of this file. The same seed, scale and rate give the same files again.
"""


@dataclass(frozen=True, slots=True)
class Made:
    """What was written."""

    recordings: int
    calls: int
    duration_s: float
    folders: tuple[Path, ...]


def make_corpus(
    folder: Path,
    *,
    seed: int = 0,
    scale: float = 1.0,
    rate_hz: int = 16000,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Made:
    """Write a corpus: the same seed, scale and rate give the same bytes, whatever the number of threads.

    `scale` multiplies the paper's counts of calls, but each of the 12 types keeps at least five calls in five
    recordings, and rare types stay rare. The folder must be new, empty, or hold the same corpus, which is then made
    anew. Each file is written whole or not at all. `report` hears shares of the work, which add up to 1.

    >>> import tempfile
    >>> made = make_corpus(Path(tempfile.mkdtemp()), scale=0.1, rate_hz=4000)
    >>> made.recordings, made.calls
    (13, 72)
    """
    if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1]:
        raise OptionError(f"rate: {RATES_HZ[0]} to {RATES_HZ[1]} Hz, got {rate_hz}")
    if threads is not None and threads < 1:
        raise OptionError(f"threads: at least 1, got {threads}")
    plans, folder = plan_corpus(seed, scale), Path(folder)
    made = Made(
        recordings=len(plans),
        calls=sum(len(plan.calls) for plan in plans),
        duration_s=sum(plan.duration_s for plan in plans),
        folders=tuple(folder / name for name in FOLDERS),
    )
    counts = {"recordings": made.recordings, "calls": made.calls, "minutes": made.duration_s / 60}
    about = README.format(seed=seed, scale=float(scale), rate_hz=rate_hz, **counts).encode()
    _refuse_strangers(folder, about)
    _make_folders(made.folders)
    _write(folder / "README.md", about)
    _write_recordings(folder, plans, seed, rate_hz, threads, progress)
    return made


def make_recording(plan: Plan, *, seed: int = 0, rate_hz: int = 16000) -> NDArray[np.int16]:
    """Make the audio of one recording of a plan alone, (frames, channels).

    >>> make_recording(plan_corpus()[0], rate_hz=4000).dtype
    dtype('int16')
    """
    random = stream(seed, "scene", plan.number)
    scene, callers = draw_scene(random), [draw_caller(random) for _ in range(random.integers(1, 4))]
    who = {
        label: int(random.integers(len(callers)))
        for label in sorted({call.label for call in plan.calls})
    }
    calls = np.zeros(round(plan.duration_s * rate_hz), np.float32)
    for number, call in enumerate(plan.calls):
        choir = (
            callers[who[call.label] :] + callers[: who[call.label]]
        )  # all calls of a type are by one of them
        _add(calls, call, choir, rate_hz, stream(seed, "voice", plan.number, number))
    first = np.round(hear(calls, scene, rate_hz, random) * 32767).astype(np.int16)
    return np.stack([first, _second_channel(first, rate_hz, random)][: plan.channels], axis=1)


def _add(calls: Samples, call: Call, callers: list[Caller], rate_hz: int, random: Random) -> None:
    gain = 10 ** ((level_db(call.label) + LEVEL_SPREAD_DB * random.standard_normal()) / 20)
    sung = sing(call.label, callers, call.end_s - call.start_s, rate_hz, random)
    begin = round(call.start_s * rate_hz)
    calls[begin : begin + sung.size] += np.float32(gain) * sung


def _second_channel(first: NDArray[np.int16], rate_hz: int, random: Random) -> NDArray[np.int16]:
    """Return what a second, less open microphone some steps away gives: a weaker copy, 2 to 15 ms later."""
    delay = round(random.uniform(0.002, 0.015) * rate_hz)
    second = np.zeros_like(first)
    second[delay:] = np.round(random.uniform(0.2, 0.6) * first[: first.size - delay])
    return second


def _write_recordings(
    folder: Path,
    plans: list[Plan],
    seed: int,
    rate_hz: int,
    threads: int | None,
    progress: Progress,
) -> None:
    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        for name in pool.map(lambda plan: _write_recording(folder, plan, seed, rate_hz), plans):
            progress(1 / len(plans), name)


def _write_recording(folder: Path, plan: Plan, seed: int, rate_hz: int) -> str:
    audio = io.BytesIO()
    soundfile.write(
        audio, make_recording(plan, seed=seed, rate_hz=rate_hz), rate_hz, "PCM_16", format="FLAC"
    )
    _write(folder / "recordings" / f"{plan.name}.flac", audio.getvalue())
    _write(
        folder / "raven" / f"{plan.name}.Table.1.selections.txt",
        raven_table(plan, seed, rate_hz).encode(),
    )
    grid = textgrid(plan, seed)
    # Praat writes UTF-16 as soon as a text has a letter beyond ASCII: every fourth file stands for those.
    data = ("\ufeff" + grid).encode("utf-16-be") if plan.number % 4 == 3 else grid.encode()
    _write(folder / "textgrid" / f"{plan.name}.TextGrid", data)
    return plan.name


def _refuse_strangers(folder: Path, about: bytes) -> None:
    """Refuse a folder that holds anything but this same corpus, whole or begun: two corpora must not be mixed."""
    readme = folder / "README.md"
    try:
        taken = folder.is_dir() and any(folder.iterdir())
        same = readme.is_file() and readme.read_bytes() == about
    except OSError as error:
        raise OutputError(f"{folder}: cannot be looked into ({error.strerror})") from error
    if taken and not same:
        raise OutputError(f"{folder}: holds something else; name a new folder")


def _make_folders(folders: tuple[Path, ...]) -> None:
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder}: the folder cannot be made ({error.strerror})") from error


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written ({error.strerror})") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()
