"""Events and their recordings → clips to listen to, with pictures, in a folder.

clips.csv                                       what each clip is, and why it was chosen
LABEL/001_RECORDING_12.3s.flac, .png            sound and spectrogram; 001 has the highest score

A clip has the sample rate of its recording, and every sample as it is there. clips.csv can be given
to `callshot score --reviewed`, once its column `confirmed` has been filled with yes or no.
"""

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl
import soundfile

from callshot.corpus.audio import open_recording
from callshot.corpus.audio_files import Signal
from callshot.corpus.spectrogram import measure_spectrogram
from callshot.detection.events import RecordingFolder, complete_events
from callshot.errors import CallshotError, OptionError, OutputError, check_range
from callshot.files import make_folder
from callshot.records import Progress, Reject, no_progress
from callshot.records.frames import CLIPS, Frame, unique_values
from callshot.records.table_files import write_csv_frame
from callshot.report.figures.figure_io import CREATOR, open_figure
from callshot.report.figures.layout import INK, TITLE_FONT, VERMILION, shorten
from callshot.report.tables.table import safe_names
from callshot.results import open_output_folder
from callshot.spans import Row
from callshot.version import __version__

TABLE = "clips.csv"
PROVENANCE = "provenance.json"
SET = "callshot clips"
UNSAFE = re.compile(r"[^\w.+-]+")
MAX_STEM = 60
MARGIN_S = 1.0  # of audio before and after the event
MAX_FLAC_HZ = 655_350
SUBTYPE = "PCM_24"  # holds samples of 8, 16 and 24 bit as they are


SIZE_IN = (4.8, 2.6)
DPI = 110
ROWS = 256  # of a spectrogram
COLUMNS = 400
DARKEST = 5  # percentile of the levels in a picture
RANGE_DB = 15.0  # at least, so that noise alone looks like noise


@dataclass(frozen=True, slots=True)
class ClipOptions:
    """How clips are chosen and cut.

    count    of each class, for each of three reasons: the best, the most uncertain, a sample
    max_hz   the highest frequency in pictures; None is all that the recording has
    channel  first, mean, or the number of a channel from 1
    seed     of the sample
    """

    count: int
    max_hz: float | None = None
    channel: str = "mean"
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("clips", self.count, 1)
        if self.max_hz is not None and not 0 < self.max_hz < 1e7:
            raise OptionError(f"max_hz: expected more than 0 Hz, got {self.max_hz}")


def write_clips(
    events: Frame,
    recordings: RecordingFolder,
    out: Path,
    options: ClipOptions,
    *,
    progress: Progress = no_progress,
) -> tuple[Frame, list[Reject]]:
    """Cut clips of chosen events into a folder, all of them or none; see `choose_events`.

    Return the table of clips, and the events whose audio could not be read.
    """
    chosen = choose_events(complete_events(events), options.count, seed=options.seed)
    labels = unique_values(chosen, "label")
    folders = dict(zip(labels, safe_names(labels, "class"), strict=True))
    rows = []
    rejects = []

    def make(folder: Path) -> list[str]:
        """Write all clips and their table to a folder; return the names of the files.

        Rows of the table, and events without a clip, are added to `rows` and `rejects`.
        """
        for event in chosen.iter_rows(named=True):
            name = event["recording"]
            short_name = UNSAFE.sub("_", PurePosixPath(name).stem)[:MAX_STEM]
            folder_of_label = folders[event["label"]]
            rank = event["rank"]
            start_s = event["start_s"]
            stem = f"{folder_of_label}/{rank:03d}_{short_name}_{start_s:.1f}s"
            path = recordings.find_file(name)
            try:
                rows.append(_cut_clip(event, path, folder, stem, options))
            except OutputError:  # no other clip could be written either
                raise
            except CallshotError as error:
                rejects.append(Reject(name, row=None, reason=f"no clip: {error}"))
            progress(1 / len(chosen), stem)
        table = pl.DataFrame(rows, dict(CLIPS))
        write_csv_frame(table, folder / TABLE)
        return [*table["clip"], *table["picture"], TABLE]

    facts = {"version": __version__, "clips": options.count, "seed": options.seed}
    with open_output_folder(out, [TABLE], PROVENANCE, owner=SET) as output:
        output.write(make, facts)
    return pl.DataFrame(rows, dict(CLIPS)), rejects


def check_clips_folder(out: Path) -> None:
    """Check, before any work, that clips can be written to a folder."""
    with open_output_folder(out, [TABLE], PROVENANCE, owner=SET):
        pass  # to open it is the check


def _cut_clip(
    event: Row, path: Path, folder: Path, stem: str, options: ClipOptions
) -> Row:
    """Write the clip of an event and its picture to a folder; return its row of the table."""
    start_s = max(0.0, event["start_s"] - MARGIN_S)
    end_s = event["end_s"] + MARGIN_S
    with open_recording(path, event["recording"]) as reader:
        rate_hz = round(reader.recording.rate_hz)
        duration_s = reader.recording.duration_s
        if start_s < duration_s:  # otherwise the reader raises the error
            end_s = min(end_s, duration_s)
        signal = reader.read_decodable(
            start_s, end_s, rate_hz=rate_hz, channel_rule=options.channel
        )
    start_s = round(start_s * rate_hz) / rate_hz  # of the first sample
    suffix = "flac" if rate_hz <= MAX_FLAC_HZ else "wav"
    row: Row = {column: event.get(column) for column in CLIPS}
    row["clip"] = f"{stem}.{suffix}"
    row["picture"] = f"{stem}.png"
    row["confirmed"] = None
    row["clip_start_s"] = start_s
    row["clip_end_s"] = start_s + signal.size / rate_hz
    audio = io.BytesIO()  # libsndfile has errors of its own on a full disk
    soundfile.write(audio, signal, rate_hz, SUBTYPE, format=suffix)
    picture = draw_spectrogram(signal, rate_hz, start_s, event, options.max_hz)
    make_folder((folder / stem).parent)
    (folder / row["clip"]).write_bytes(audio.getbuffer())
    (folder / row["picture"]).write_bytes(picture)
    return row


def choose_events(events: Frame, count: int, *, seed: int = 0) -> Frame:
    """Choose events of each class: the best, the most uncertain, and a sample over all scores.

    The best have the highest scores, the most uncertain the lowest: a little less, and they would
    not have been detected. For the sample, the events of a class are divided by score into `count`
    parts of equal size, and one is drawn from each. An event may be chosen for several reasons.
    The result has the events by class and falling score, with the columns `rank` and `why`.

    >>> names = {"recording": "a.wav", "label": "roar", "end_s": 9.0}
    >>> events = pl.DataFrame(
    ...     [{**names, "start_s": float(n), "score": n / 10} for n in range(8)]
    ... )
    >>> choose_events(events, 1).select("score", "rank", "why").rows()
    [(0.7, 1, 'best'), (0.2, 6, 'sample'), (0.0, 8, 'uncertain')]
    """
    nothing = events.clear()
    parts = [nothing.with_columns(rank=pl.lit(0, pl.Int64), why=pl.lit(""))]
    for label in sorted(unique_values(events, "label")):
        ranked = events.filter(label=label).sort(
            ["score", "recording", "start_s"],
            descending=[True, False, False],
            nulls_last=True,
            maintain_order=True,
        )
        # The sample of a label does not depend on other labels.
        random = np.random.default_rng([seed, crc32(label.encode())])
        scored = len(ranked) - ranked["score"].null_count()  # the others come last
        strata = min(count, len(ranked))
        edges = np.arange(strata + 1) * len(ranked) // strata  # first rows of strata
        rows_of_reason = {
            "best": range(min(count, scored)),
            "uncertain": range(max(0, scored - count), scored),
            "sample": [int(random.integers(*pair)) for pair in pairwise(edges)],
        }
        reasons: dict[int, list[str]] = {}  # by row
        for reason, rows in rows_of_reason.items():
            for row in rows:
                reasons.setdefault(row, []).append(reason)
        chosen = sorted(reasons)
        rank = np.array(chosen) + 1
        why = pl.Series([", ".join(reasons[row]) for row in chosen])
        parts.append(ranked[chosen].with_columns(rank=rank, why=why))
    return pl.concat(parts)


def draw_spectrogram(
    signal: Signal,
    rate_hz: int,
    start_s: float,
    event: Mapping[str, Any],
    max_hz: float | None = None,
) -> bytes:
    """Return a spectrogram of samples that begin at `start_s` as PNG, with the event in it."""
    max_hz = min(max_hz or np.inf, rate_hz / 2)
    edges_hz = np.linspace(0, max_hz, ROWS + 1)
    window_s = ROWS / max_hz  # long for low calls, so that rows differ
    level_db = measure_spectrogram(signal, rate_hz, edges_hz, COLUMNS, window_s)
    low_db = float(np.percentile(level_db, DARKEST))
    end_s = start_s + signal.size / rate_hz
    title = f"{event['label']}, {event['recording']}"
    if event["score"] is not None:
        title = f"{event['score']:.2f}  {title}"
    content = io.BytesIO()
    with open_figure() as figure:
        figure.set_size_inches(*SIZE_IN)
        ax = figure.subplots()
        ax.imshow(
            level_db,
            extent=(start_s, end_s, 0, max_hz),
            cmap="magma",
            vmin=low_db,
            vmax=max(float(level_db.max()), low_db + RANGE_DB),
            aspect="auto",
            interpolation="nearest",
        )
        ax.grid(visible=False)
        ax.set(
            xlabel="time in the recording, s",
            ylabel="frequency, Hz",
            xlim=(start_s, end_s),
        )
        for edge_s in (event["start_s"], event["end_s"]):
            # Dashes in two colours are seen on dark and on bright sounds.
            ax.axvline(edge_s, color="white", linewidth=0.9)
            ax.axvline(edge_s, color=VERMILION, linewidth=0.9, linestyle=(0, (3, 3)))
        margins_in = 0.7
        room_pt = 72 * (SIZE_IN[0] - margins_in)  # 72 points are an inch
        ax.set_title(shorten(title, room_pt, TITLE_FONT), color=INK)
        figure.savefig(content, format="png", dpi=DPI, metadata={"Software": CREATOR})
    return content.getvalue()
