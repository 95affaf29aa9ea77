"""Embed the segments of `callshot segment` with MFCC, for `callshot evaluate`.

Every encoder of your own works the same way: read the audio of each segment, compute one vector,
write the table. Segments that cannot be read are printed and left out.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from callshot import Vectors, load_audio, read_segments, write_table
from callshot.encoders.models.mfcc import MfccOptions, compute_mean_mfcc


def main(source: Path, target: Path, audio: Path | None = None) -> None:
    """Read segments, embed them, and write the table."""
    segments = read_segments(source)
    if audio is not None:
        segments = replace(segments, root=audio)
    names = segments["segment"]
    rates_hz = segments["rate_hz"]
    embedded = []
    vectors = []
    for row, signal in load_audio(segments):
        if isinstance(signal, Exception):
            print(f"left out: {names[row]}: {signal}", file=sys.stderr)
            continue
        options = MfccOptions(rate_hz=rates_hz[row])
        embedded.append(row)
        vectors.append(compute_mean_mfcc(signal, options))
    if not embedded:
        sys.exit(
            f"{source}: no segment could be read in {segments.root}; "
            "if the recordings were moved, name their folder with --audio"
        )
    table = Vectors(segments.take(embedded), np.array(vectors), "mfcc")
    write_table(table, target, corpus=segments.metadata.get("corpus"))
    print(
        f"{len(table)} vectors in {target}; next: callshot evaluate {target} --out results"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("segments", type=Path, help="segments.parquet")
    parser.add_argument("table", type=Path, help="the table to write, .parquet")
    parser.add_argument(
        "--audio", type=Path, help="the folder of the recordings, if they moved"
    )
    arguments = parser.parse_args()
    main(arguments.segments, arguments.table, arguments.audio)
