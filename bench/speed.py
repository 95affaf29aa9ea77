"""Speeds, fixed and chosen: mAP of the nearest centroid on segments, and on shifted corpora.

    python bench/speed.py SEGMENTS... --speeds 1,2,4,2+4,auto
    python bench/speed.py --shifted 0.125 0.25 0.5 2 4 8 --folder DIR

With --shifted, synthetic corpora are made in DIR (seeds 1 to 6), and all frequencies of their
calls are multiplied by 1/8 to 8, as if they were time-expanded recordings. mAP is the mean over
labelled sets, `shared` its 98 % interval over those, and `total` that on other recordings. Gains
are paired, over the first speed, with their 98 % interval in `total`.
"""

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from callshot.corpus.options import SegmentationOptions
from callshot.corpus.segment_table import read_segments
from callshot.corpus.segments import segment_corpus
from callshot.corpus.synthetic.corpus import make_corpus
from callshot.encoders.embed import EmbedOptions, default_store, embed
from callshot.spans import Spans
from callshot.vectors import Vectors
from encoder_scores import TableRow, compare_tables
from table import parser, show

SHIFTS = {0.125: 1, 0.25: 2, 0.5: 3, 2: 4, 4: 5, 8: 6}  # factor: seed
SCALE = 0.5
TYPES = 8  # the commonest call types, of about ten calls each
RATE_HZ = 16000


def make_shifted(folder: Path, seed: int, factor: float) -> Spans:
    """Make a synthetic corpus, unless it is there, and return its segments, shifted."""
    corpus = folder / f"syn{seed}"
    if not corpus.exists():
        make_corpus(corpus, seed=seed, scale=SCALE)
    root = corpus / "recordings"
    options = SegmentationOptions(min_length_s=0.3)
    segments = segment_corpus(root, corpus / "raven", options=options).segments
    labels = segments["label"]
    common = [label for label, _ in Counter(labels).most_common(TYPES)]
    kept = segments.take([row for row, label in enumerate(labels) if label in common])
    rate_hz = round(RATE_HZ * factor)  # as if the recording were so many times faster
    return kept.with_columns(
        start_s=np.array(kept["start_s"]) / factor,
        end_s=np.array(kept["end_s"]) / factor,
        rate_hz=rate_hz,
        source_rate_hz=float(rate_hz),
    )


def list_corpora(
    paths: Sequence[Path], shifts: Sequence[float], folder: Path
) -> Iterator[tuple[str, Spans]]:
    """Yield the name and the audio of each corpus: files, then shifted corpora."""
    for path in paths:
        yield path.parent.name, read_segments(path)
    for factor in shifts:
        yield f"shifted {factor:g}", make_shifted(folder, SHIFTS[factor], factor)


def embed_speeds(
    name: str, audio: Spans, options: argparse.Namespace
) -> Iterator[Vectors]:
    """Yield the vectors of a corpus at each speed; print what `auto` chose."""
    for speed in options.speeds.split(","):
        choices = {"speed": speed, "pooling": options.pooling}
        embed_options = EmbedOptions(choices, options.store)
        table, _ = embed(audio, options.encoder, embed_options)
        if table.note:
            print(f"{name}: {table.note}", flush=True)
        yield table


def main() -> None:
    """Measure all corpora and print one table."""
    arguments = parser(__doc__)
    arguments.add_argument("segments", nargs="*", type=Path, metavar="SEGMENTS")
    arguments.add_argument("--encoder", default="birdnet-v2.4")
    arguments.add_argument("--pooling", default="mean")
    arguments.add_argument("--speeds", default="1,2,4,2+4,auto")
    arguments.add_argument(
        "--shifted", nargs="+", type=float, choices=SHIFTS, default=()
    )
    arguments.add_argument("--folder", type=Path, default=Path("shifted"))
    arguments.add_argument("--store", type=Path, default=default_store())
    arguments.add_argument("--samples", type=int, default=1000)
    options = arguments.parse_args()
    corpora = list_corpora(options.segments, options.shifted, options.folder)
    rows: list[TableRow] = []
    for name, audio in corpora:
        tables = [*embed_speeds(name, audio, options)]
        rows += compare_tables(name, tables, options.samples)
    show("bench/speed: mAP by k, and gains over the first row", rows, options.json)


if __name__ == "__main__":
    main()
