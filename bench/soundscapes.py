"""What a scan finds by signal-to-noise ratio and call type, and its false alarms.

    python bench/soundscapes.py FOLDER --encoder birdnet-v2.4
    python bench/soundscapes.py FOLDER --encoder mfcc --window 2 --hop 1 --templates

FOLDER gets (once) a synthetic site: two hours at each signal-to-noise ratio, with 100 calls an hour
of 5 types at the same times; two hours without calls to find thresholds (quiet), two more to count
false alarms (unseen), and 20 examples of each type, at 0, 6 and 12 dB. Windows are embedded once.

examples    clips recorded elsewhere, mixed into background of the site; or annotated: calls in
            recordings of the site
background  scanned: the recordings with calls and the unseen hours, without labels (as scan does
            with clips); own: what is not annotated in the recordings of the examples (as scan does
            with annotated recordings); quiet: the two hours without calls
figures     precision and recall at the thresholds (right name, IoU 0.3), event AP (mean over
            types), false alarms per hour and type (on no call) in the recordings with calls, and in
            the unseen hours: the mean over types, and that of the worst. Means over draws.
"""

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from callshot.corpus.synthetic.site import synthesise_soundscape
from callshot.detection.background import (
    ANNOTATED,
    MAX_WINDOWS,
    UNLABELLED,
    WITHOUT_CALLS,
)
from callshot.detection.detector import find_thresholds
from detector_examples import (
    Array,
    Embedder,
    Examples,
    Windows,
    embed_clips,
    embed_own,
    find_annotations,
    read_calls,
    read_windows,
    select_free,
)
from detectors import IOU, LOOSER, Trial, draw, make_background, make_shipped
from table import parser, show
from template_matching import match_templates, read_spectrogram

RATIOS_DB = (0, 6, 12)
CASES = (
    ("clips", "mixed", "scanned", UNLABELLED),
    ("clips", "mixed", "quiet", WITHOUT_CALLS),
    ("annotated", "own", "own", ANNOTATED),
    ("annotated", "own", "quiet", WITHOUT_CALLS),
)
UNSEEN = "unseen"

Figures = dict[str, Array]
"""Of each call type: calls, found, events, AP, false alarms per hour."""


def make_soundscapes(folder: Path, seed: int) -> None:
    """Make all parts of the site that are not there."""
    shape = {"recordings": 12, "minutes": 10, "every_minutes": 120}
    parts: dict[str, dict[str, Any]] = {}
    for ratio_db in RATIOS_DB:
        calls = {"snr_db": ratio_db, "calls_per_hour": 100, "examples": 1}
        parts[f"{ratio_db} dB"] = shape | calls
    for name, day in (("quiet", "04"), (UNSEEN, "06")):
        start = f"2026-03-{day}T01:00"
        parts[name] = shape | {"start": start, "calls_per_hour": 0, "examples": 1}
    one = {"recordings": 1, "minutes": 1, "calls_per_hour": 0}
    parts["examples"] = one | {"examples": 20}
    for name, options in parts.items():
        complete = folder / f"{name} is complete"
        if not complete.exists():
            synthesise_soundscape(folder / name, seed=seed, types=5, **options)
            complete.touch()


@dataclass
class Site:
    """Everything that is known of the site, with one encoder."""

    trials: dict[str, Trial]  # by name: those with calls, and the unseen hours
    backgrounds: dict[str, Windows]
    kinds: dict[str, Examples]

    @property
    def classes(self) -> list[str]:
        """The call types."""
        return self.trials[UNSEEN].classes

    def background(self, name: str, place: str) -> Windows:
        """Return background windows for a scan of one place and the unseen hours."""
        if name != "scanned":
            return self.backgrounds[name]
        parts = [self.trials[place].windows, self.trials[UNSEEN].windows]
        count = sum(len(one.start_s) for one in parts)
        return join_windows(parts, -(-count // MAX_WINDOWS))


def join_windows(parts: list[Windows], step: int) -> Windows:
    """Return every n-th window of several sets."""
    columns = [
        np.concatenate([getattr(one, name)[::step] for one in parts])
        for name in ("vectors", "start_s", "path")
    ]
    return Windows(*columns, parts[0].window_s, parts[0].hop_s)


def open_site(options: Namespace) -> Site:
    """Embed everything once, and return it."""
    folder = options.folder
    work = folder / "work" / options.encoder
    place = folder / "examples" / "examples"
    calls = read_calls(place / "recordings", find_annotations(place))
    lengths = calls.with_columns(length=pl.col("end_s") - pl.col("start_s"))
    medians = lengths.group_by("label").agg(pl.col("length").median()).sort("label")

    def read(name: str, root: Path) -> Windows:
        return read_windows(root / "recordings", work / name, options)

    trials = {}
    quiet = read("quiet", folder / "quiet")
    for name in (*(f"{ratio_db} dB" for ratio_db in RATIOS_DB), UNSEEN):
        known = read_calls(
            folder / name / "recordings", find_annotations(folder / name)
        )
        if known.is_empty():
            known = calls.clear()
        trials[name] = Trial(
            read(name, folder / name),
            known,
            quiet,
            medians["label"].to_list(),
            medians["length"].to_numpy(),
            options.aim,
        )
    own = select_free(read("own", place), calls)
    kinds = embed_examples(folder, options, work / "examples.npz")
    return Site(trials, {"quiet": quiet, "own": own}, kinds)


def embed_examples(
    folder: Path, options: Namespace, stored: Path
) -> dict[str, Examples]:
    """Return clips mixed into the site, and calls annotated there; they are embedded once."""
    if not stored.exists():
        embedder = Embedder(options)
        place = folder / "examples" / "examples"
        recordings = folder / f"{RATIOS_DB[0]} dB" / "recordings"
        kinds = embed_clips(folder / "examples" / "clips", recordings, embedder)
        kinds["own"] = embed_own(
            place / "recordings", find_annotations(place), embedder
        )
        arrays = {f"{kind} vectors": one.vectors for kind, one in kinds.items()}
        labels = {f"{kind} label": one.label.astype(str) for kind, one in kinds.items()}
        np.savez(stored, **arrays, **labels)
    loaded = np.load(stored)
    names = {key.split()[0] for key in loaded}
    return {
        name: Examples(loaded[f"{name} vectors"], loaded[f"{name} label"])
        for name in sorted(names)
    }


def judge(
    trial: Trial, scores: Array, thresholds: Array, loose_thresholds: Array
) -> Figures:
    """Return the figures of each call type."""
    events = trial.detect(scores, thresholds)
    ranked = trial.detect(scores, loose_thresholds)
    rows = []
    for name in trial.classes:
        calls = trial.calls.filter(label=name)
        named = events.filter(pl.col("label") == name)
        found = int((trial.match(named, calls, IOU) >= 0).sum())
        hits = trial.match(ranked.filter(pl.col("label") == name), calls, IOU) >= 0
        precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        ap = (precision * hits).sum() / max(len(calls), 1)
        false = trial.count_away(named) / trial.windows.hours
        rows.append((len(calls), found, len(named), ap, false))
    names = ("calls", "found", "events", "AP", "false")
    return dict(zip(names, np.array(rows, float).T, strict=True))


def measure_case(
    site: Site, case: tuple[str, str, str, str], chosen: Examples
) -> dict[str, tuple[Figures, Figures]]:
    """Return the figures at each ratio of the shipped detector, and those of the unseen hours."""
    _, _, background, origin = case
    places = [name for name in site.trials if name != UNSEEN]
    groups = [places]
    if background == "scanned":
        groups = [[place] for place in places]
    figures = {}
    for group in groups:
        windows = make_background(site.background(background, group[0]), origin)
        aim = site.trials[UNSEEN].aim
        detector, loose = make_shipped(chosen, windows, aim)
        found = {}
        for name in (*group, UNSEEN):
            scores = detector.score(site.trials[name].windows.vectors)
            found[name] = judge(site.trials[name], scores, detector.thresholds, loose)
        figures |= {name: (found[name], found[UNSEEN]) for name in group}
    return figures


def summarise(draws: list[tuple[Figures, Figures]]) -> dict[str, object]:
    """Return the means over draws and call types."""
    means = [_summarise_draw(*one) for one in draws]
    row: dict[str, object] = {}
    for name in means[0]:
        values = [one[name] for one in means if not np.isnan(one[name])]
        row[name] = round(float(np.mean(values)), 2) if values else "–"
    return row


def _summarise_draw(figures: Figures, unseen: Figures) -> dict[str, float]:
    events = figures["events"].sum()
    return {
        "precision": figures["found"].sum() / events if events else np.nan,
        "recall": float(np.mean(figures["found"] / figures["calls"])),
        "AP": float(figures["AP"].mean()),
        "false/h": float(figures["false"].mean()),
        "unseen false/h": float(unseen["false"].mean()),
        "worst type": float(unseen["false"].max()),
    }


def measure_all(site: Site, options: Namespace) -> Iterator[dict[str, object]]:
    """Yield a row for each case, number of examples and ratio, with the figures of each type."""
    for case in CASES:
        examples, kind, background, _ = case
        for shots in options.shots:
            draws = [
                measure_case(
                    site, case, draw(site.kinds[kind], shots, seed, site.classes)
                )
                for seed in range(options.draws if shots < 20 else 1)
            ]
            for place in draws[0]:
                head = {
                    "examples": f"{shots} {examples}",
                    "background": background,
                    "ratio": place,
                }
                pairs = [figures[place] for figures in draws]
                yield {**head, **summarise(pairs), "by_type": by_type(site, pairs)}


def by_type(site: Site, draws: list[tuple[Figures, Figures]]) -> dict[str, str]:
    """Return for each call type: precision / recall / AP / false alarms per unseen hour."""
    cells = {}
    for number, name in enumerate(site.classes):
        one = {
            key: sum(figures[key][number] for figures, _ in draws) / len(draws)
            for key in draws[0][0]
        }
        unseen = sum(figures["false"][number] for _, figures in draws) / len(draws)
        precision = one["found"] / one["events"] if one["events"] else np.nan
        recall = one["found"] / one["calls"]
        parts = (precision, recall, one["AP"], unseen)
        cells[name] = " / ".join(f"{part:.2f}" for part in parts)
    return cells


def measure_templates(site: Site, options: Namespace) -> Iterator[dict[str, object]]:
    """Yield rows of template matching, with thresholds of the quiet hours."""
    folder = options.folder
    place = folder / "examples" / "examples" / "recordings"
    calls = read_calls(place, find_annotations(place.parent))
    for shots in options.shots:
        templates = {}
        for name in site.classes:
            chosen = calls.filter(label=name).sample(fraction=1, shuffle=True, seed=0)
            templates[name] = [
                read_spectrogram(place / path, 1.0, (start_s, end_s))
                for path, start_s, end_s, _ in chosen.head(shots).iter_rows()
            ]

        def match(name: str, windows: Windows, templates: dict = templates) -> Array:
            root = folder / name / "recordings"
            return match_templates(templates, root, windows, site.classes, 1.0)

        quiet = site.backgrounds["quiet"]
        scores = match("quiet", quiet)
        allowed = quiet.hours * options.aim
        thresholds = find_thresholds(scores, allowed)
        loose = find_thresholds(scores, LOOSER * allowed)
        figures = {
            name: judge(trial, match(name, trial.windows), thresholds, loose)
            for name, trial in site.trials.items()
        }
        for name in site.trials:
            if name == UNSEEN:
                continue
            draws = [(figures[name], figures[UNSEEN])]
            head = {
                "examples": f"{shots} templates",
                "background": "quiet",
                "ratio": name,
            }
            yield {**head, **summarise(draws), "by_type": by_type(site, draws)}


def main() -> None:
    """Measure everything, and print a table of all types and one of each type."""
    arguments = parser(__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--encoder", default="birdnet-v2.4")
    arguments.add_argument("--window", type=float)
    arguments.add_argument("--hop", type=float)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--seed", type=int, default=31)
    arguments.add_argument("--draws", type=int, default=2)
    arguments.add_argument(
        "--shots",
        type=lambda text: [int(one) for one in text.split(",")],
        default=[1, 5, 20],
    )
    arguments.add_argument("--aim", type=float, default=1.0)
    arguments.add_argument("--templates", action="store_true")
    arguments.add_argument("--only-embed", action="store_true")
    options = arguments.parse_args()
    make_soundscapes(options.folder, options.seed)
    site = open_site(options)
    if options.only_embed:
        return
    rows = list(measure_all(site, options))
    if options.templates:
        rows += measure_templates(site, options)
    types = [row.pop("by_type") for row in rows]
    show(f"soundscapes of seed {options.seed}, {options.encoder}", rows, options.json)
    heads = [
        {name: row[name] for name in ("examples", "background", "ratio")}
        for row in rows
    ]
    joined = [{**head, **cells} for head, cells in zip(heads, types, strict=True)]
    show("precision / recall / AP / false alarms per unseen hour", joined)


if __name__ == "__main__":
    main()
