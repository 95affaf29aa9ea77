"""Turn the segments of `callshot segment` into a table of embeddings for `callshot evaluate`, with MFCC.

Any encoder goes the same way: read the audio of each segment, make one vector of it, write the table. What cannot be
read is told and left out.

    python examples/embed_mfcc.py SEGMENTS.parquet TABLE.parquet
"""

import sys
from pathlib import Path

import numpy as np

from callshot import Embeddings, read_segment_table, read_segments, write_table
from callshot.encoders.mfcc import embed


def main(source: Path, target: Path) -> None:
    """Read segments, embed them, write the table."""
    segments, facts = read_segment_table(source)
    kept, vectors = [], []
    for n, signal in read_segments(Path(facts["audio"]), segments):
        if isinstance(signal, Exception):
            print(f"left out: {segments[n].segment}: {signal}", file=sys.stderr)
        else:
            kept.append(segments[n])
            vectors.append(embed(signal))
    folds = [segment.more.get("fold") for segment in kept]
    table = Embeddings(
        encoder="mfcc",
        vectors=np.array(vectors),
        segment=[segment.segment for segment in kept],
        recording=[segment.recording for segment in kept],
        label=[segment.label for segment in kept],
        labels=[segment.labels for segment in kept],
        fold=None if None in folds else np.array(folds, np.int64),
        source=str(source),
    )
    write_table(table, target, corpus=facts.get("corpus"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
