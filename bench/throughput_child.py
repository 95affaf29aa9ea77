"""One way to embed a corpus, in a process of its own: a line comes in, a round is run.

    python bench/throughput_child.py WAY ENCODER FOLDER SEGMENTS CORES

After each line on standard input it prints its windows and CPU seconds as JSON. WAY is bare (models
alone, one for each core), read (no model) or embed.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

from callshot.corpus.audio import load_audio
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.embed import embed_spans
from callshot.encoders.encode import open_encoder
from callshot.encoders.store import Store
from callshot.encoders.workers import default_threads
from callshot.spans import Spans

RATE_HZ = 16000
LENGTH_S = 5.0
RECORDINGS = 4
RECORDING_S = 180.0


def list_segments(count: int, folder: Path) -> Spans:
    """Return segments of `RECORDINGS` recordings, at equal distances."""
    each = -(-count // RECORDINGS)
    step_s = (RECORDING_S - LENGTH_S) / each
    segments = []
    for n in range(count):
        recording, place = divmod(n, each)
        start_s = place * step_s
        times = {"start_s": start_s, "end_s": start_s + LENGTH_S}
        segments.append({"recording": f"{recording}.flac", **times})
    spans = Spans.from_rows(segments, root=folder)
    return spans.with_columns(rate_hz=RATE_HZ, peak_dbfs=-3.0)


class Way:
    """An open encoder, and the segments that it gets in every round."""

    def __init__(self, encoder: str, folder: Path, count: int) -> None:
        self.folder = folder
        self.segments = list_segments(count, folder)
        self.encoder = open_encoder(find_encoder(encoder), threads=default_threads())
        self.prepared = list(map(self.prepare, load_audio(self.segments)))
        self.windows = sum(segment.windows for segment in self.prepared)

    def prepare(self, loaded: tuple[int, Any]) -> Any:
        """Return what the model gets of a segment."""
        return self.encoder.prepare(loaded[1], RATE_HZ)

    def bare(self) -> None:
        """Run the model alone on all segments, in threads of equal shares."""
        count = self.encoder.workers
        parts = [self.prepared[n::count] for n in range(count)]
        threads = [Thread(target=self.run_each, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def run_each(self, part: list[Any]) -> None:
        """Run the model on segments, window by window."""
        for segment in part:
            self.encoder.run(segment.input)

    def read(self) -> None:
        """Read and prepare all segments, without the model."""
        threads = len(os.sched_getaffinity(0))
        for loaded in load_audio(self.segments, threads=threads):
            self.prepare(loaded)

    def embed(self) -> None:
        """Embed all segments from their recordings into an empty store."""
        with (
            tempfile.TemporaryDirectory(dir=self.folder) as store,
            Store(Path(store), self.encoder.fingerprint) as opened,
        ):
            embed_spans(self.segments, self.encoder, opened)


def answer(run: Callable[[], object], windows: int) -> None:
    """Run a round for each line that comes in, and print its figures."""
    print(json.dumps({"ready": windows}), flush=True)
    for _ in sys.stdin:
        start_s = time.process_time()
        run()
        cpu_s = time.process_time() - start_s
        print(json.dumps({"windows": windows, "cpu_s": cpu_s}), flush=True)


def main() -> None:
    """Open the encoder on the cores that are given, and answer."""
    name, encoder, folder, count, cores = sys.argv[1:]
    os.sched_setaffinity(0, map(int, cores.split(",")))
    way = Way(encoder, Path(folder), int(count))
    answer(getattr(way, name), way.windows)


if __name__ == "__main__":
    main()
