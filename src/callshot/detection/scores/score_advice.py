"""What the user should know before scores are believed: notes, and which scores mislead."""

from collections.abc import Iterator, Sequence

import polars as pl

from callshot.detection.scores.rank_detections import Task
from callshot.detection.scores.ranked_detections import RankedDetections
from callshot.errors import count_text
from callshot.records.frames import Frame

FEW_RECORDINGS = 5
# If more of the annotated calls cannot be matched by events, scores by windows come first.
MOST_UNREACHABLE = 0.1


def is_misleading(events: Sequence[RankedDetections]) -> bool:
    """Return whether many calls are too short to be matched by events."""
    unreachable = sum(detections.unreachable for detections in events)
    annotated = sum(int(detections.annotated.sum()) for detections in events)
    return unreachable > MOST_UNREACHABLE * annotated


def warn_unreachable(scores: Frame, task: Task) -> Iterator[str]:
    """Say how many calls are too short to be matched by events, and what to believe."""
    total = scores.filter(pl.col("label").is_null(), by="events").row(0, named=True)
    unreachable = total["unreachable"]
    if unreachable == 0:
        return
    annotated = total["annotated"]
    lengths = [task.find_shortest(label) for label in task.labels]
    shortest = f"{min(lengths):.3g}"
    if max(lengths) > min(lengths):
        shortest += f" to {max(lengths):.3g}"
    least = f"{task.min_iou:g}"
    warning = (
        f"{unreachable} of {annotated} annotated calls ({unreachable / annotated:.0%}) are too "
        f"short to be matched by events: the shortest detections last {shortest} s, and one that "
        f"contains such a call has an IoU below {least} with it"
    )
    if scores["by"][0] == "windows":
        yield f"{warning}; believe the scores by windows, not those by events"
    else:
        yield f"{warning}; by events they count as missed"


def describe_task(task: Task) -> list[str]:
    """Describe what the user should know before the scores are believed."""
    notes = []
    detected = {*task.detections["label"]}
    annotated = {*task.annotations["label"]}
    if detected and annotated and detected.isdisjoint(annotated):
        notes.append(
            f"no label is both detected ({', '.join(sorted(detected))}) "
            f"and annotated ({', '.join(sorted(annotated))})"
        )
    count = len(task.recordings)
    if count < FEW_RECORDINGS:
        recordings = count_text(count, "recording")
        notes.append(f"intervals from {recordings} are too narrow")
    return notes
