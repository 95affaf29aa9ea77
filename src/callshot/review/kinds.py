"""Kinds of sounds: recordings and sounds in the order in which to listen to them, and a map.

All of it comes from the windows of the index that are ready, and changes while there are more.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from callshot.detection.index.clock import shift_clock
from callshot.errors import RequestError
from callshot.review.similar import NOT_READY, Search

if TYPE_CHECKING:
    from callshot.detection.ready_windows import Sounds, Space
    from callshot.encoders.windows import Float32Array

MAX_ORDER = 240  # sounds that are shown one list after another
SILENT = "All that is ready to be searched is silent."
MIN_LISTENED = 0.5  # share of a sound that counts as listened to

Span = tuple[float, float]


class Kinds:
    """Sounds of an index that may still be made; computed again when there are more windows.

    _measured_on  space and number of windows that the others were computed from
    _sounds       None if nothing is ready, or all is silent
    _cover        how much each sound (row) covers of every one (column)
    _points       place of each sound on the map, x and y
    _recordings   in the order in which to listen to them, and the share of all that each adds
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self._lock = Lock()
        self._measured_on: tuple[Space, int] | None = None
        self._sounds: Sounds | None = None
        self._cover: Float32Array = np.empty((0, 0), np.float32)
        self._points: list[list[int]] = []
        self._recordings: dict[str, float] = {}

    def _refresh(self) -> None:
        """Compute everything again if there are more windows; call with the lock held."""
        from callshot.detection.ready_windows import (
            measure_cover,
            order_recordings,
            sample_windows,
        )
        from callshot.report.plane import principal_plane, scale_points

        if self.search.windows is None:
            return
        space, parts = self.search.windows.sketches
        count = sum(len(part.start_s) for part in parts)
        if space is None or count == 0 or self._measured_on == (space, count):
            return
        sounds = sample_windows(space, parts)
        if len(sounds.start_s) > 0:
            self._sounds = sounds
            self._cover = measure_cover(sounds)
            self._recordings = order_recordings(sounds, self._cover)
            points, _ = principal_plane(sounds.sketch)
            self._points = scale_points(points)
        self._measured_on = (space, count)

    def order_recordings(self) -> dict[str, float]:
        """Return recordings, most new sounds first, and the share of all that each adds."""
        with self._lock:
            self._refresh()
            return self._recordings

    def describe(
        self,
        calls: Sequence[Mapping[str, Any]],
        listened: Mapping[str, Sequence[Span]],
        clocks: Mapping[str, str | None],
    ) -> dict[str, Any]:
        """Return sounds with their place on the map, and the order in which to listen to them.

        `calls` are boxes, `listened` spans by recording, `clocks` the beginnings of recordings. Of
        a sound, `label` is the name of a call in it, and `listened` whether it was listened to.
        `order` has the numbers of the sounds that are not known: those without a call that were not
        listened to. Each is as different as can be from those before it and from what is known.
        """
        from callshot.detection.ready_windows import choose_greedily

        with self._lock:
            self._refresh()
            sounds, cover, points = self._sounds, self._cover, self._points
            if sounds is None:
                has_windows = bool(self.search.windows)  # neither None nor empty
                why = SILENT if has_windows else self.search.note or NOT_READY
                raise RequestError(why, 409)
        boxes = defaultdict(list)
        for box in calls:
            boxes[box["recording"]].append((box["start_s"], box["end_s"], box["label"]))
        rows = []
        columns = (sounds.recording, sounds.start_s, sounds.end_s)
        for name, start_s, end_s, point in zip(
            *(column.tolist() for column in columns), points, strict=True
        ):
            labels = [
                label
                for first_s, last_s, label in boxes[name]
                if first_s < end_s and last_s > start_s  # they overlap
            ]
            listened_s = sum(
                max(0.0, min(end_s, last_s) - max(start_s, first_s))
                for first_s, last_s in listened.get(name, ())
            )
            row = {
                "recording": name,
                "start_s": start_s,
                "end_s": end_s,
                "clock": shift_clock(clocks.get(name), start_s),
                "label": labels[0] if labels else None,
                "listened": listened_s >= MIN_LISTENED * (end_s - start_s),
                "point": point,
            }
            rows.append(row)
        is_known = np.array(
            [row["listened"] or row["label"] is not None for row in rows]
        )
        # How much of each sound those that are known cover, (sounds,)
        covered = cover[is_known].max(axis=0, initial=0.0)
        unknown = np.flatnonzero(~is_known)
        order, _ = choose_greedily(
            cover[np.ix_(unknown, unknown)],
            covered[unknown],
            MAX_ORDER,
            sounds.distance[unknown],
        )
        return {"sounds": rows, "order": unknown[order].tolist()}
