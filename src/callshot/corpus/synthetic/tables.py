"""The calls of a recording as annotation tools write them: a plan comes in, the text of a file goes out."""

from collections.abc import Sequence

from callshot.corpus.synthetic.call_synthesis import band_hz
from callshot.corpus.synthetic.plan import Call, Plan, stream

RAVEN_COLUMNS = (
    "Selection",
    "View",
    "Channel",
    "Begin Time (s)",
    "End Time (s)",
    "Low Freq (Hz)",
    "High Freq (Hz)",
    "Annotation",
)
NOTES = (
    "wind is picking up",
    "two cows and a calf, forty metres",
    'matriarch looks up, "listening"',
    "out of sight now, calls go on",
    "car on the road, engine off",
    "family moves to the water",
)
Span = tuple[float, float, str]


def raven_table(plan: Plan, seed: int, rate_hz: int) -> str:
    """Write a Raven selection table; in every second one each selection has a row for both of Raven's views."""
    views = ("Waveform 1", "Spectrogram 1") if plan.number % 2 == 1 else ("Spectrogram 1",)
    rows = ["\t".join(RAVEN_COLUMNS)]
    for number, call in enumerate(plan.calls):
        times = f"{call.start_s:.9f}\t{call.end_s:.9f}"
        low_hz, high_hz = band_hz(call.label, stream(seed, "band", plan.number, number))
        band = f"{low_hz:.3f}\t{min(high_hz, rate_hz / 2):.3f}"
        rows += [f"{number + 1}\t{view}\t1\t{times}\t{band}\t{call.label}" for view in views]
    return "\n".join(rows) + "\n"


def textgrid(plan: Plan, seed: int) -> str:
    """Write a Praat TextGrid in the long form, with a tier `call 2` only where calls overlap."""
    first, second = _apart(plan.calls)
    tiers = [("call", first), ("call 2", second), ("notes", _notes(plan, seed))]
    tiers = [(name, spans) for name, spans in tiers if spans or name != "call 2"]
    lines = [
        'File type = "ooTextFile"',
        'Object class = "TextGrid"',
        "",
        "xmin = 0",
        f"xmax = {plan.duration_s!r}",
    ]
    lines += ["tiers? <exists>", f"size = {len(tiers)}", "item []:"]
    for number, (name, spans) in enumerate(tiers, 1):
        lines += [f"    item [{number}]:", *_tier(name, spans, plan.duration_s)]
    return "\n".join(lines) + "\n"


def _apart(calls: Sequence[Call]) -> tuple[list[Span], list[Span]]:
    """Part calls so that those of one tier do not overlap; at most two calls are heard at a time."""
    tiers: tuple[list[Span], list[Span]] = ([], [])
    for call in calls:
        tier = tiers[0] if not tiers[0] or tiers[0][-1][1] <= call.start_s else tiers[1]
        tier.append((call.start_s, call.end_s, call.label))
    return tiers


def _notes(plan: Plan, seed: int) -> list[Span]:
    """Speak up to two notes, each within its half of the recording."""
    random = stream(seed, "notes", plan.number)
    spans = []
    for half in range(int(random.integers(0, 3))):
        start_s = round((half + random.uniform(0, 0.6)) * plan.duration_s / 2, 3)
        end_s = round(start_s + 0.15 * plan.duration_s, 3)
        spans.append((start_s, end_s, NOTES[random.integers(len(NOTES))]))
    return spans


def _tier(name: str, spans: Sequence[Span], duration_s: float) -> list[str]:
    """Write one tier, whose intervals fill the recording: those between the spans are empty."""
    filled = _with_gaps(spans, duration_s)
    lines = ['class = "IntervalTier"', f'name = "{name}"', "xmin = 0", f"xmax = {duration_s!r}"]
    lines = [f"        {line}" for line in [*lines, f"intervals: size = {len(filled)}"]]
    for number, (start_s, end_s, text) in enumerate(filled, 1):
        quoted = text.replace('"', '""')
        lines += [
            f"        intervals [{number}]:",
            f"            xmin = {start_s!r}",
            f"            xmax = {end_s!r}",
        ]
        lines += [f'            text = "{quoted}"']
    return lines


def _with_gaps(spans: Sequence[Span], duration_s: float) -> list[Span]:
    filled: list[Span] = []
    free_s = 0.0
    for start_s, end_s, text in spans:
        filled += [(free_s, start_s, "")] if start_s > free_s else []
        filled.append((start_s, end_s, text))
        free_s = end_s
    return [*filled, (free_s, duration_s, "")] if duration_s > free_s else filled
