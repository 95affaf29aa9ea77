"""Turn the segments of `callshot segment` into a table of embeddings for `callshot evaluate`, with MFCC.

Any encoder goes the same way: read the audio of each segment, make one vector of it, write the table. What cannot be
read is told and left out.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from callshot import Embeddings, read_segments, load_audio, write_table
from callshot.encoders.mfcc import MfccOptions, embed


def main(source: Path, target: Path, audio: Path | None = None) -> None:
    """Read segments, embed them, write the table."""
    segments, facts = read_segments(source)
    folder = Path(facts["audio"]) if audio is None else audio
    kept, vectors = [], []
    for n, signal in load_audio(folder, segments):
        if isinstance(signal, Exception):
            print(f"left out: {segments[n].segment}: {signal}", file=sys.stderr)
        else:
            kept.append(segments[n])
            vectors.append(embed(signal, MfccOptions(rate_hz=segments[n].rate_hz)))
    if not kept:
        sys.exit(
            f"{source}: no segment could be read in {folder}; if the recordings were moved, name it with --audio"
        )
    table = Embeddings(
        encoder="mfcc",
        vectors=np.array(vectors),
        segment=[segment.segment for segment in kept],
        recording=[segment.recording for segment in kept],
        label=[segment.label for segment in kept],
        labels=[segment.labels for segment in kept],
        fold=given_folds(kept),
        source=str(source),
    )
    write_table(table, target, corpus=facts.get("corpus"))
    print(f"{len(kept)} vectors in {target}; next: callshot evaluate {target} --out results")


def given_folds(segments) -> np.ndarray | None:
    """Take the folds that came with the annotations: those of all segments, or none."""
    folds = [segment.extra.get("fold") for segment in segments]
    if None in folds and any(fold is not None for fold in folds):
        sys.exit(
            f"{segments[folds.index(None)].segment}: no fold is given, and others have one; fill or drop the column"
        )
    return None if None in folds else np.array(folds, np.int64)


if __name__ == "__main__":
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("segments", type=Path, help="segments.parquet")
    options.add_argument("table", type=Path, help="the table to write, .parquet")
    options.add_argument(
        "--audio", type=Path, help="the folder of the recordings, where it is another now"
    )
    chosen = options.parse_args()
    main(chosen.segments, chosen.table, chosen.audio)
