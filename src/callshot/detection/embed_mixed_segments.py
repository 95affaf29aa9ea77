"""Embed segments as if they had been recorded at another site.

Each segment is mixed into background of the site once at each signal-to-noise ratio, scaled as the
segment is, and embedded; its vector is the mean.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from callshot.corpus.mixing import SNRS_DB, mix_spans
from callshot.encoders.embed import EmbedOptions, embed
from callshot.errors import InputError, OptionError, check_range
from callshot.records import Progress, Reject, no_progress
from callshot.spans import Spans
from callshot.vectors import Vectors

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


def embed_mixed_segments(
    segments: Spans,
    mix: BackgroundMix,
    encoder: str,
    options: EmbedOptions,
    progress: Progress = no_progress,
) -> tuple[Vectors, list[Reject]]:
    """Embed segments, mixed into background: each gets the mean of its mixtures.

    A segment of which a mixture fails is a reject.
    """
    if options.cluster is not None:
        raise OptionError(
            "cluster: cannot be combined with site; remove one of the two"
        )
    mixed = mix_spans(segments, mix.recordings, mix.snr_db)
    table, rejects = embed(mixed, encoder, options, progress=progress)
    copies = len(mix.snr_db)
    owner = np.array(table.spans["mixed_from"])
    complete = np.flatnonzero(np.bincount(owner, minlength=len(segments)) == copies)
    if len(complete) == 0:
        raise InputError(f"{table.source}: no segment could be embedded in background")
    vectors = table.matrix[np.isin(owner, complete)]
    grouped = vectors.reshape(-1, copies, vectors.shape[1])
    means = grouped.mean(axis=1, dtype=np.float64).astype(vectors.dtype)
    name = MIXED_NAME.format(table.encoder)
    levels = ", ".join(f"{value:g}" for value in mix.snr_db)
    note = NOTE.format(name, mix.recordings, levels)
    if table.note:
        note = f"{table.note}; {note}"
    averaged = replace(
        table,
        spans=segments.take(complete),
        matrix=means,
        encoder=name,
        note=note,
    )
    by_row: dict[int, Reject] = {}
    for reject in rejects:
        assert reject.row is not None  # it is a segment, not a file
        row = (reject.row - 1) // copies + 1
        by_row.setdefault(row, replace(reject, row=row))
    return averaged, list(by_row.values())
