"""More like this: an index that is made while a person listens, and sounds in it that are similar.

A child process makes the index, as `callshot index` does. What it has written so far is searched
(`ready_windows.py`). The calls of a name, and the sounds of which a person said that they are not
of this name, decide what is similar; every answer changes both.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from callshot.corpus.recordings import Library
from callshot.detection.index.clock import shift_clock
from callshot.errors import InputError, OptionError, RequestError
from callshot.review.children import RUNNING, Job

if TYPE_CHECKING:
    from callshot.detection.index.index_files import IndexSettings
    from callshot.detection.ready_windows import ReadyWindows
    from callshot.encoders.windows import Float32Array

DEFAULT_ENCODER = "birdnet-v2.4"
NONE = "none"
INDEX_FOLDER = "index"
DEFAULT_WINDOW_S = 1.0  # of encoders without a window of their own
CARDS = 12
START_S = 1.0  # so that the first picture of the page does not wait
REFRESH_S = 1.5
# By the share of the way from the background to the mean of the examples.
WORDS = ((0.75, "very similar"), (0.5, "similar"), (-np.inf, "less similar"))
NOT_READY = "No recording is ready to be searched yet. It takes a few minutes at first."

Box = Mapping[str, Any]
Place = tuple[str, float, float]  # recording, start_s, end_s of a box


@dataclass(frozen=True)
class SearchOptions:
    """Which index is searched: one that is there, or one that is made.

    encoder   None: the encoder of the index, or DEFAULT_ENCODER; NONE: no search
    choices   options of the encoder
    window_s  for encoders without a window of their own
    index     folder; None: INDEX_FOLDER in the folder of labels
    """

    encoder: str | None = NONE
    choices: Mapping[str, str] | None = None
    window_s: float | None = None
    index: Path | None = None


def find_place(box: Box) -> Place:
    """Return recording, start and end of a box."""
    return box["recording"], box["start_s"], box["end_s"]


class Search:
    """The index of the recordings that are labelled, and the process that makes it.

    path             the folder of the recordings, or the only one
    note             why there is no search, empty if there is one
    arguments        options by which `callshot index` and `learn` make the same vectors
    index_arguments  further options of `callshot index`
    windows, job     what is ready to be searched, and the process; None until there is one
    """

    def __init__(self, library: Library, folder: Path, options: SearchOptions) -> None:
        self.library = library
        self.folder = (options.index or folder / INDEX_FOLDER).absolute()
        root = library.root.absolute()
        self.path = root / library.paths[0] if library.is_single else root
        self.windows: ReadyWindows | None = None
        self.job: Job | None = None
        self.note = ""
        self.arguments = ["--encoder", DEFAULT_ENCODER]
        self.index_arguments: list[str] = []
        self._embedded: dict[Place, Float32Array] = {}
        self._stopping = Event()
        self._thread: Thread | None = None
        if options.encoder == NONE:
            self.note = "Similar sounds are not searched (--encoder none)."
            return
        self._set_encoder(options)
        if not self.note:
            self._thread = Thread(target=self._follow, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the process that makes the index; what it has made stays."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        if self.job is not None:
            self.job.stop()

    def _set_encoder(self, options: SearchOptions) -> None:
        """Set the arguments of both commands by the index if there is one, else by the options.

        Set `note` if the encoder is not installed. OptionError if the options want another index.
        """
        from callshot.detection.index.index_files import (
            check_has_audio,
            is_index,
            read_settings,
        )
        from callshot.detection.index.windows import find_spec
        from callshot.encoders.install import list_needs

        encoder = options.encoder or DEFAULT_ENCODER
        choices = dict(options.choices or {})
        window_s = options.window_s
        if is_index(self.folder):
            check_has_audio(self.folder)
            settings = read_settings(self.folder)
            if options.encoder not in (None, settings.encoder):
                raise OptionError(
                    f"encoder: {self.folder} is an index of {settings.name}; remove --encoder, "
                    "or name another folder with --index"
                )
            encoder = settings.encoder
            choices = dict(settings.choices)
            window_s = settings.window_s
            self.index_arguments = ["--hop", repr(settings.hop_s)]
        spec = find_spec(encoder, choices)
        needs = list_needs(spec)
        if needs:
            commands = ", then ".join(needs)
            self.note = f"To search for similar sounds, install {encoder}: {commands}"
        self.arguments = ["--encoder", encoder]
        for name, value in choices.items():
            self.arguments += ["--set", f"{name}={value}"]
        if spec.windowing is None:
            self.arguments += ["--window", repr(window_s or DEFAULT_WINDOW_S)]

    def _follow(self) -> None:
        """Make the index, and look for new windows until all are there; in a thread."""
        if self._stopping.wait(START_S):
            return
        from callshot.detection.ready_windows import ReadyWindows

        root = self.library.root.absolute()
        names = self.library.paths
        self.windows = ReadyWindows(self.folder, root, names)
        command = ["index", str(self.path), "--out", str(self.folder)]
        command += [*self.arguments, *self.index_arguments]
        self.job = Job([("preparing recordings for the search", command)])
        is_last = False
        while not is_last and not self._stopping.is_set():
            is_last = self.job.state != RUNNING  # look once more after its end
            self.windows.refresh()
            self._stopping.wait(REFRESH_S)

    def describe(self, duration_s: float) -> dict[str, Any]:
        """Return what the page shows of the index; `duration_s` is the length of all recordings."""
        answer: dict[str, Any] = {"state": "none", "note": self.note, "windows": 0}
        if self._thread is None:
            return answer | {"share": 0.0}
        if self.job is not None:
            answer |= self.job.describe()
        answer["share"] = 1.0
        answer["windows"] = 0 if self.windows is None else len(self.windows)
        if self._thread.is_alive():
            answer["state"] = RUNNING  # until all windows can be searched
            ready_s = 0.0
            if answer["windows"]:
                ready_s = answer["windows"] * self.read_settings().hop_s
            # Less than 1 while it runs; lengths may not be known yet.
            answer["share"] = min(0.99, ready_s / max(duration_s, 1e-9))
        return answer

    def read_settings(self) -> "IndexSettings":
        """Return the settings of the index; RequestError if there is none yet."""
        from callshot.detection.index.index_files import read_settings

        try:
            return read_settings(self.folder)
        except InputError:
            raise RequestError(NOT_READY, 409) from None

    def find_window(self, box: Box) -> "Float32Array | None":
        """Return the vector of the window that has most of a box; None if none is ready."""
        if self.windows is None:
            return None
        vector = self.windows.find_vector(*find_place(box))
        return None if vector is None else np.asarray(vector, np.float32)

    def _find_ready_vector(self, box: Box) -> "Float32Array | None":
        """Return the vector of a box: of its window, or embedded before; None if there is none."""
        vector = self.find_window(box)
        return self._embedded.get(find_place(box)) if vector is None else vector

    def _find_ready_vectors(self, boxes: Sequence[Box]) -> "list[Float32Array]":
        """Return the vectors of boxes in their order, without those that are not ready."""
        vectors = map(self._find_ready_vector, boxes)
        return [vector for vector in vectors if vector is not None]

    def _make_vector(self, box: Box) -> "Float32Array":
        """Return the vector of a box; embed the box if none is ready, which takes a while."""
        from callshot.detection.index.find_windows import embed_span

        vector = self._find_ready_vector(box)
        if vector is not None:
            return vector
        place = find_place(box)
        name, start_s, end_s = place
        path = self.library.root / name
        settings = self.read_settings()
        vector = embed_span(path, start_s, end_s, self.folder, settings, threads=1)
        self._embedded[place] = vector
        return vector

    def find_similar(
        self,
        box: Box,
        calls: Sequence[Box],
        refused: Sequence[Box],
        answered: Sequence[Box],
        clocks: Mapping[str, str | None],
    ) -> dict[str, Any]:
        """Return sounds that are similar to the calls of a name, as cards of the page.

        box       a call of this name, which is embedded if the index does not reach it yet
        calls     all calls of this name; `refused` are sounds that are not of it
        answered  sounds that are not shown again
        clocks    when each recording begins, by its name
        """
        from callshot.detection.ready_windows import choose_different

        if self.windows is None:
            raise RequestError(self.note or NOT_READY, 409)
        other_calls = [call for call in calls if call is not box]
        examples = [self._make_vector(box), *self._find_ready_vectors(other_calls)]
        unlike = self._find_ready_vectors(refused)
        answered_spans = defaultdict(list)
        for place in answered:
            span = (place["start_s"], place["end_s"])
            answered_spans[place["recording"]].append(span)
        dimension = self.read_settings().dimension
        # The shape is (vectors, dimension), also where nothing was refused.
        unlike_matrix = np.array(unlike).reshape(-1, dimension)
        ranked = self.windows.rank(np.array(examples), unlike_matrix, answered_spans)
        cards = []
        for window in choose_different(ranked, CARDS):
            card = {
                "recording": window.recording,
                "start_s": window.start_s,
                "end_s": window.end_s,
                "clock": shift_clock(clocks.get(window.recording), window.start_s),
                # Of WORDS, from the most similar on, the first whose limit it reaches
                "likeness": next(
                    word for least, word in WORDS if window.share >= least
                ),
            }
            cards.append(card)
        return {
            "label": box["label"],
            "cards": cards,
            "examples": len(calls),
            "refused": len(refused),
            "note": "" if cards or len(self.windows) else NOT_READY,
        }
