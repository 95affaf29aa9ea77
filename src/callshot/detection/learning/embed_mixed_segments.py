"""Segments and recordings of another site → vectors of the calls mixed into its background.

Each call is mixed into background once at each signal-to-noise ratio, scaled as its segment is, and
embedded; its vector is the mean. Without recordings of another site, segments are embedded as they
are.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from callshot.corpus.audio import load_audio, normalise_peak
from callshot.detection.learning.mix_calls import SNRS_DB, choose_backgrounds, mix_call
from callshot.detection.learning.unlabelled_background import (
    UnlabelledBackground,
    find_background,
)
from callshot.encoders.batching import Loaded
from callshot.encoders.embed import (
    EmbedOptions,
    SegmentAudio,
    Source,
    WriteSequences,
    embed,
    segment_source,
)
from callshot.errors import InputError, OptionError, check_range
from callshot.files import sha256_text
from callshot.jobs import Cluster
from callshot.records import (
    Embeddings,
    Progress,
    Reject,
    Segment,
    no_progress,
)
from callshot.storage import know_files

RATIOS_DB = (-30, 60)
MIXED_NAME = "{}, at site"  # the name of an encoder on calls in background
NOTE = "{}: calls were mixed into background of {} at {} dB before they were embedded"


@dataclass(frozen=True)
class BackgroundMix:
    """Recordings to take background from, and the ratios at which calls are mixed into it.

    recordings  a folder or a file
    snr_db      signal-to-noise ratios
    """

    recordings: Path
    snr_db: Sequence[float] = SNRS_DB

    def __post_init__(self) -> None:
        values = self.snr_db
        if not values or len(set(values)) < len(values):
            listed = ",".join(f"{value:g}" for value in values)
            raise OptionError(
                f"snr_db: expected values in dB, each once, got {listed!r}"
            )
        for value in values:
            check_range("snr_db", value, *RATIOS_DB, "dB")


@dataclass(frozen=True)
class Copy:
    """A call, the background that it is mixed into, and at which signal-to-noise ratio."""

    call: Segment
    background: Segment
    snr_db: float

    def mix(self, call: Loaded, background: Loaded) -> Loaded:
        """Return the audio of both together, or the error of one; scaled as the call was."""
        number, signal = call
        _, noise = background
        if isinstance(signal, InputError):
            return number, signal
        if isinstance(noise, InputError):
            return number, noise
        try:
            mixed = mix_call(signal, noise, self.snr_db, self.call.rate_hz)
        except InputError as error:
            return number, error
        if self.call.peak_dbfs is not None:
            mixed = normalise_peak(mixed, self.call.peak_dbfs)
        return number, mixed


def check_no_cluster(
    mix: BackgroundMix | None, cluster: Cluster | None, prefix: str = ""
) -> None:
    """Raise OptionError if calls are to be mixed on a cluster; options begin with `prefix`."""
    if mix is not None and cluster is not None:
        raise OptionError(
            f"cluster: cannot be combined with {prefix}site; remove {prefix}cluster"
        )


def embed_recorded_segments(
    segments: Sequence[Segment],
    root: Path,
    encoder: str,
    options: EmbedOptions,
    *,
    mix: BackgroundMix | None = None,
    source: Source = "memory",
    write_sequences: WriteSequences | None = None,
    progress: Progress = no_progress,
) -> tuple[Embeddings, list[Reject]]:
    """Embed segments of the recordings under `root`, mixed into background if there is a `mix`.

    `source`, `write_sequences` and what is returned are those of `embed`.
    """
    root = know_files(root, (segment.path for segment in segments))
    load = partial(load_audio, root, threads=options.threads)
    if options.cluster is not None:  # workers have other folders, and a thread each
        load = partial(load_audio, root.absolute(), threads=1)
    audio = SegmentAudio(segments, root, load, source)
    if mix is not None:
        return embed_mixed_segments(audio, encoder, options, mix=mix, progress=progress)
    return embed(
        audio, encoder, options, write_sequences=write_sequences, progress=progress
    )


def embed_mixed_segments(
    audio: SegmentAudio,
    encoder: str,
    options: EmbedOptions,
    *,
    mix: BackgroundMix,
    progress: Progress = no_progress,
) -> tuple[Embeddings, list[Reject]]:
    """Embed segments as if they had been recorded where the background comes from.

    Parameters
    ----------
    audio, encoder, options, progress
        As in `embed`.
    mix
        Each call is mixed into another background of its recordings at each of its ratios.

    Returns
    -------
    tuple
        The vectors, one row per segment; the other segments, with the reasons.

    Raises
    ------
    InputError
        If the recordings have too little audio, or no segment could be embedded.
    """
    background = find_background(mix.recordings, audio.segments[0])
    copies = plan_copies(audio.segments, background, mix.snr_db)
    mixed = SegmentAudio(
        [replace(copy.call, segment=name) for name, copy in copies.items()],
        audio.root,
        partial(load_copies, copies, audio.root, background.root),
        audio.source,
        partial(_name_source, copies, background.root),
    )
    table, rejects = embed(mixed, encoder, options, progress=progress)
    names = {name: copy.call.segment for name, copy in copies.items()}
    count = len(mix.snr_db)
    averaged = average_copies(table, names, count)
    note = _describe(averaged, mix)
    return replace(averaged, note=note), _merge_rejects(rejects, count)


def _describe(table: Embeddings, mix: BackgroundMix) -> str:
    """Return the note of a table, with how its calls were changed."""
    levels = ", ".join(f"{value:g}" for value in mix.snr_db)
    note = NOTE.format(table.encoder, mix.recordings, levels)
    return f"{table.note}; {note}" if table.note else note


def plan_copies(
    segments: Sequence[Segment],
    background: UnlabelledBackground,
    ratios_db: Sequence[float],
) -> dict[str, Copy]:
    """Return the copies of all segments, by names of their own, one segment after the other."""
    copies = {}
    for segment in segments:
        numbers = choose_backgrounds(
            segment.segment, len(ratios_db), len(background.spans)
        )
        for number, snr_db in zip(numbers, ratios_db, strict=True):
            name = f"{segment.segment} at {snr_db!r} dB"
            noise = background.cut(number, segment)
            copies[name] = Copy(segment, noise, snr_db)
    return copies


def load_copies(
    copies: Mapping[str, Copy],
    root: Path,
    background_root: Path,
    segments: Sequence[Segment],
) -> Iterator[Loaded]:
    """Yield the audio of copies in order."""
    segment_copies = [copies[segment.segment] for segment in segments]
    calls = load_audio(root, [copy.call for copy in segment_copies])
    backgrounds = load_audio(
        background_root, [copy.background for copy in segment_copies]
    )
    with closing(calls), closing(backgrounds):
        for copy, call, background in zip(
            segment_copies, calls, backgrounds, strict=True
        ):
            yield copy.mix(call, background)


def _name_source(
    copies: Mapping[str, Copy], background_root: Path, root: Path, segment: Segment
) -> str:
    """Name where the audio of a copy comes from: both sources, and the ratio."""
    copy = copies[segment.segment]
    parts = (
        segment_source(root, copy.call),
        segment_source(background_root, copy.background),
        copy.snr_db,
    )
    return sha256_text(repr(parts))[:32]


def average_copies(
    table: Embeddings, names: Mapping[str, str], copies: int
) -> Embeddings:
    """Return the mean vector of each segment that has all its copies.

    `names` are the segments by the names of their copies, which are one after the other.
    """
    owner = [names[name] for name in table.segment]
    counts = Counter(owner)
    complete = {name for name in owner if counts[name] == copies}
    complete_rows = [row for row, name in enumerate(owner) if name in complete]
    if not complete_rows:
        raise InputError(f"{table.source}: no segment could be embedded in background")
    part = table.only({table.segment[row] for row in complete_rows[::copies]})
    vectors = table.vectors[complete_rows].reshape(-1, copies, table.vectors.shape[1])
    return replace(
        part,
        encoder=MIXED_NAME.format(table.encoder),
        segment=[owner[row] for row in complete_rows[::copies]],
        vectors=vectors.mean(axis=1, dtype=np.float64).astype(vectors.dtype),
    )


def _merge_rejects(rejects: Sequence[Reject], copies: int) -> list[Reject]:
    """Return one reject for each segment whose copies could not be embedded."""
    by_row: dict[int, Reject] = {}
    for reject in rejects:
        assert reject.row is not None  # it is a segment, not a file
        row = (reject.row - 1) // copies + 1
        by_row.setdefault(row, replace(reject, row=row))
    return list(by_row.values())
