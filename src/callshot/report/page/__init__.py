"""Results, summaries, tables and pictures → one HTML file that needs no network.

Only its own scripts and styles run, by the hashes in its content security policy. What the charts
read is JSON: `lines["0.1.2"]` is the first metric in the second spread of the third encoder, as
mean, p01 and p99 over `shots`; "0.1.2.3" is its fourth class, "0.1.2.c0" the first classifier.
"""

import base64
import hashlib
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from jinja2 import Template
from markupsafe import Markup

from callshot.errors import InputError
from callshot.fewshot.label_budget import has_gains, recommended_class
from callshot.fewshot.metrics import chance_average_precision
from callshot.files import write_atomic
from callshot.records import (
    CLASS_METRICS,
    DECISION_METRICS,
    METRIC_NAMES,
    METRICS,
    CorpusResults,
    Evaluation,
)
from callshot.records.frames import Frame, Shots
from callshot.records.terms import MEAN
from callshot.report.choices import (
    classifier_name,
    largest_shot,
    list_classifiers,
    list_queries,
    main_spread,
)
from callshot.report.encoder_names import explain_encoders, with_names
from callshot.report.figures.confusion import fill_matrix
from callshot.report.summary import Summary
from callshot.report.tables.corpus_tables import examples_needed_table
from callshot.report.tables.table import Column, Table, make_rows, to_html
from callshot.report.templates import clean, make_environment
from callshot.results import explain_errors

DIGITS = 4  # rounded once, so that a shown number equals the one in `curve.csv`
ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}
INTERVAL = ("mean", "p01", "p99")
MEAN_CHANCE = "chance, mean over k and encoders"

Data = dict[str, Any]  # as the scripts of the page read it
Lines = dict[str, list[list[float | None]]]

NO_CALLS: Data = {"labels": [], "calls": [], "encoder_calls": []}


def to_json(value: Any) -> str:
    r"""Return JSON that cannot end the script element around it.

    >>> print(to_json({"label": "</script>"}))
    {"label":"\u003c/script\u003e"}
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.translate(ESCAPES)


def class_chances(evaluation: Evaluation) -> dict[str, float]:
    """Return the expected AP of a random ranking for each class, averaged over folds."""
    segments = evaluation.segments
    folds = evaluation.folds
    is_query = np.isin(segments["segment"], list_queries(evaluation))
    queries = np.bincount(folds.fold[is_query], minlength=folds.count)
    pairs = zip(segments["label"], segments["labels"], strict=True)
    labels = [{label, *others} for label, others in pairs]
    chances = {}
    for count in evaluation.eligible_classes:
        is_positive = is_query & [count.label in names for names in labels]
        positives = np.bincount(folds.fold[is_positive], minlength=folds.count)
        chance = chance_average_precision(positives, queries).mean()
        chances[count.label] = float(chance)
    return chances


def corpus_data(results: CorpusResults, summary: Summary, shots: Shots) -> Data:
    """Return what the charts of a corpus show, with its confusions at some shots.

    `best` and `k` are the encoder and the k that charts open with. `headline` marks, on the first
    curve, the points of the headline, and the level of chance.
    """
    evaluation = results.evaluation
    curve = evaluation.curve
    all_shots = sorted(set(curve["k"]))
    # What a key of `lines` is made of: all values of each part, with their positions.
    metrics = _number_rows(curve, "scoring", "metric")
    spreads = _number_rows(curve, "spread")
    encoders = _number_rows(curve, "encoder")
    classes = _number_rows(evaluation.per_class, "label")
    pairs = _number_rows(evaluation.differences, "one", "other")
    axes = [metrics, spreads, encoders]
    lines = _make_lines(curve, axes, all_shots)
    lines |= _make_lines(evaluation.per_class, [*axes, classes], all_shots)
    others = []
    if results.other_classifiers is not None:
        others = [n for n in list_classifiers(results) if n not in curve["classifier"]]
        classifiers = pl.Series("classifier", others, pl.String).to_frame()
        points = results.other_classifiers.curve
        lines |= _make_lines(
            points, [*axes, classifiers.with_row_index()], all_shots, prefix="c"
        )
    # Differences of means over labelled sets, where they are known, instead of the main spread.
    differences = evaluation.differences
    spread = main_spread(evaluation)
    if MEAN in differences["spread"]:
        differences = differences.filter(pl.col("spread") != spread)
        differences = differences.with_columns(pl.col("spread").replace({MEAN: spread}))
    difference_lines = _make_lines(
        differences,
        [metrics, spreads, pairs],
        all_shots,
        fields=(*INTERVAL, "wins", "clear"),
    )
    return {
        "name": clean(evaluation.corpus),
        "complete_shots": evaluation.complete_shots,
        "shots": all_shots,
        "new_exemplars": curve.unique("k").sort("k")["new_exemplars"].to_list(),
        "metrics": _describe_metrics(evaluation, metrics, classes["label"]),
        "spreads": evaluation.spreads,
        "encoders": list(map(clean, encoders["encoder"])),
        "classes": list(map(clean, classes["label"])),
        "classifiers": [clean(classifier_name(name)) for name in others],
        "lines": lines,
        "baselines": _list_baselines(results.baselines, metrics, encoders),
        "pairs": [list(map(clean, names)) for _, *names in pairs.iter_rows()],
        "differences": difference_lines,
        "best": evaluation.encoders.index(summary.best),
        "k": summary.headline.k,
        "headline": _mark_headline(curve.filter(spread=spread), summary),
        "confusion": confusion_data(evaluation, shots, summary.headline.k),
    }


def _list_baselines(baselines: Frame, metrics: Frame, encoders: Frame) -> list[Data]:
    """Return the baselines that have a metric of the curves, and the positions of what they read.

    `metrics` and `encoders` are frames of `_number_rows`. The encoder is None if it was audio.
    """
    by_metric = ["scoring", "metric"]
    shown = baselines.join(metrics, on=by_metric, maintain_order="left")
    positions = dict(encoders.select("encoder", "index").iter_rows())
    return [
        {
            "name": clean(baseline["name"]),
            "kind": baseline["kind"],
            "encoder": positions.get(baseline["encoder"]),
            "metric": baseline["index"],
            "value": _round(baseline["value"]),
        }
        for baseline in shown.iter_rows(named=True)
    ]


def _mark_headline(curve: Frame, summary: Summary) -> Data:
    """Return the points of a curve that the headline is about, and the level of chance."""
    headline = summary.headline
    marked = curve.filter(
        pl.col("k").is_in([headline.k, headline.next_k]),
        encoder=summary.best,
        scoring="all",
        metric="map",
    )
    points = marked.sort("k").select("k", "mean", "chance").rows()
    _, _, chance = points[0]  # it may differ between k
    return {
        "marks": [(k, mean, f"{mean:.2f} with {k}") for k, mean, _ in points],
        "chance": {"name": f"chance {chance:.2f}", "value": chance},
    }


def _number_rows(frame: Frame, *columns: str) -> Frame:
    """Return the different values of some columns, in order, with their position as `index`."""
    return frame.select(columns).unique(maintain_order=True).with_row_index()


def _make_lines(
    points: Frame,
    numbered: Sequence[Frame],
    shots: Shots,
    prefix: str = "",
    fields: Sequence[str] = INTERVAL,
) -> Lines:
    """Return the values of each line of a chart, by the key of the line.

    The values are a list for each field, with None at shots that the line does not have. The key
    has the number of the line in each of `numbered`, frames of `_number_rows`; the last one after a
    prefix. `points` are rows of curves, one for each k; those without a number are left out.
    """
    # A column for each part of the key: the number of the metric, the spread, …
    positions = [f"position {number}" for number in range(len(numbered))]
    for frame, position in zip(numbered, positions, strict=True):
        names = [name for name in frame.columns if name != "index"]
        points = points.join(frame, on=names, maintain_order="left")
        points = points.rename({"index": position})
    all_shots = pl.DataFrame({"k": shots})
    lines = {}
    for (*first, last), line in points.group_by(positions, maintain_order=True):
        parts_of_key = [str(position) for position in first]
        parts_of_key.append(f"{prefix}{last}")
        at_all_shots = all_shots.join(line, on="k", how="left", maintain_order="left")
        values = []
        for field in fields:
            rounded = [_round(value) for value in at_all_shots[field]]
            values.append(rounded)
        key = ".".join(parts_of_key)
        lines[key] = values
    return lines


def _describe_metrics(
    evaluation: Evaluation, metrics: Frame, classes: pl.Series
) -> list[Data]:
    """Return the name and the level of chance of each metric, and of its values of classes.

    `metrics` is a frame of `_number_rows`. Without curves of classes, `of_class` is None. Chance is
    a mean, because that of decisions differs a little between k and encoders.
    """
    chances_of_classes = {
        "map": class_chances(evaluation),
        "auroc": dict.fromkeys(classes, 0.5),
    }
    descriptions = []
    for _, scoring, metric in metrics.iter_rows():
        points = evaluation.curve.filter(scoring=scoring, metric=metric)
        chances = chances_of_classes.get(metric, {})
        is_decision = metric in DECISION_METRICS
        name = METRIC_NAMES[metric]
        if scoring != "all":
            name = f"{scoring} {name}"
        if is_decision:
            name += f" among these {len(classes)} call types"
        has_classes = scoring == "all" and metric in CLASS_METRICS
        description = {
            "name": name,
            "of_class": METRICS[metric].of_class if has_classes else None,
            "chance": _round(points["chance"].to_numpy().mean()),
            "chance_name": MEAN_CHANCE if is_decision else "chance",
            "chances": [_round(chances.get(label)) for label in classes],
        }
        descriptions.append(description)
    return descriptions


def _round(value: float | None) -> float | None:
    """Round a number to the digits of the page; None, which JSON can hold, if it is not finite."""
    if value is None or not isfinite(value):
        return None
    return round(value, DIGITS) + 0.0  # no negative zero


def confusion_data(evaluation: Evaluation, shots: Shots, headline_k: int) -> Data:
    """Return the confusion matrices of every encoder at some shots, in percent of a row.

    Rows are the true call types. The key of a matrix is the position of its encoder, and k. The
    heat map opens at the k of the headline, or the largest evaluated one below it.
    """
    labels = evaluation.eligible_labels
    evaluated = set(evaluation.confusion["k"])
    first = headline_k
    if evaluated:
        first = largest_shot(evaluated, headline_k)
    shown = sorted(evaluated & {*shots, first})
    matrices = {}
    for (number, encoder), k in product(enumerate(evaluation.encoders), shown):
        cells = evaluation.confusion.filter(encoder=encoder, k=k)
        percent = 100 * fill_matrix(cells, "recall", labels)
        matrices[f"{number}.{k}"] = [
            [round(value, 1) for value in row] for row in percent.tolist()
        ]
    names = list(map(clean, labels))
    return {"labels": names, "shots": shown, "first": first, "matrices": matrices}


STYLES = ("uPlot.min.css", "page.css", "first_screen.css", "panels.css")
SCRIPTS = (
    "uPlot.iife.min.js",
    "dom.js",
    "sections.js",
    "chart.js",
    "panels.js",
    "sounds.js",
    "confusion.js",
    "pointmap.js",
    "map.js",
    "tables.js",
)
LICENCE = "uPlot.LICENSE.txt"
HEADINGS = {
    "encoder": "Which encoder?",
    "confused": "Which call types are confused?",
    "listen": "What do the calls sound and look like?",
    "labels": "What is the next label worth?",
    "training": "Is training better, and from when?",
    "certainty": "How sure is this?",
    "left-out": "What was left out?",
    "methods": "Methods, ready to paste",
    "repeat": "How do I add my own encoder, or repeat this?",
    "provenance": "Where do the numbers come from?",
}
# The figure that the sentences of a section rest on.
FIGURES = {
    "encoder": "curves-panel",
    "confused": "confusion-panel",
    "labels": "budget",
    "training": "training-figures",
    "certainty": "certainty-figures",
    "left-out": "left-out-tables",
}
# Those of them that a study may not have.
LATER_FIGURES = ("training-figures", "certainty-figures", "left-out-tables")
# Only the styles and scripts of the page count, and nothing is fetched.
POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:; "
    "media-src data:; base-uri 'none'; form-action 'none'"
)
PNG = b"\x89PNG\r\n\x1a\n"
MAX_REJECTS = 200
MAX_ITEMS = 100  # of a list in the provenance, for example of recordings
SHADES = 8  # of the style of the page


@cache
def get_template(name: str) -> Template:
    """Return a template of the page, in which text is escaped."""
    environment = make_environment("callshot.report.page", clean, autoescape=True)
    environment.filters["plain"] = _format_value
    environment.filters["change"] = format_change
    environment.filters["class_metric"] = lambda metric: METRICS[metric].of_class
    return environment.get_template(name)


def render_part(part: str, *values: Any) -> Markup:
    """Return a part of the page: a macro of `parts.html`.

    >>> render_part("paragraphs", ["1 < 2"])
    Markup('<p>1 &lt; 2</p>')
    """
    macro = getattr(get_template("parts.html").module, part)
    return Markup(macro(*values))


def _format_value(value: Any) -> str:
    """Return a plain value of the provenance, or a list of such values."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_format_value, value)) or "none"
    if value is None:
        return "none"
    if isinstance(value, str | Path):
        return str(value)
    return json.dumps(value, default=str)


def show_picture(caption: str, path: Path) -> Markup:
    """Return a PNG file with its caption, as a part of the page: its bytes are in it."""
    data = path.read_bytes()
    if not data.startswith(PNG) or len(data) < 24:
        raise InputError(f"{path}: expected a PNG file; draw the figure again")
    encoded = base64.b64encode(data).decode("ascii")
    width, height = struct.unpack(">II", data[16:24])  # in the header of every PNG
    return render_part("picture", caption, encoded, width, height)


def show_budget(budget: Frame) -> Markup:
    """List the classes of each encoder by their gain; the best encoder is first and open."""
    value = pl.col("value").fill_nan(None)  # NaN would be the largest
    gain = pl.col("next_gain").fill_nan(None)
    ordered = budget.sort(
        value.mean().over("encoder", "metric"),
        "encoder",
        "metric",
        gain,
        "label",
        descending=[True, False, False, True, False],
        nulls_last=True,
    )
    encoders = [
        (rows.to_dicts(), recommended_class(rows), has_gains(rows))
        for rows in ordered.partition_by("encoder", "metric")
    ]
    return render_part("budget", encoders)


def show_left_out(results: CorpusResults, name: str) -> Markup:
    """Return notes, and what was left out, with reasons; ids of tables begin with `name`."""
    evaluation = results.evaluation
    title = "Rows and files that were left out"
    if len(results.rejects) > MAX_REJECTS:
        title += f": the first {MAX_REJECTS} of {len(results.rejects):,}; "
        title += "rejects.csv has all of them"
    excluded = Table(
        "classes",
        "Classes that were not evaluated",
        list(map(Column, ("class", "exemplars", "reason"))),
        make_rows(
            [one.label, one.exemplars, one.reason]
            for one in evaluation.excluded_classes
        ),
    )
    rejects = Table(
        "rejects",
        title,
        list(map(Column, ("file", "row", "reason"))),
        make_rows(
            [one.file, "" if one.row is None else one.row, one.reason]
            for one in results.rejects[:MAX_REJECTS]
        ),
    )
    tables = [
        to_html(table, f"{name}-{table.name}") if table.rows else Markup()
        for table in (excluded, rejects)
    ]
    notes = list(dict.fromkeys([*results.notes, *evaluation.notes]))
    return render_part("left_out", notes, *tables, len(results.rejects))


def show_matrix(results: CorpusResults, k: int) -> Markup:
    """Return the AP of every encoder and call type at k as shaded cells; nothing if unknown."""
    evaluation = results.evaluation
    points = evaluation.per_class.filter(
        scoring="all", metric="map", spread=main_spread(evaluation), k=k
    )
    if points.is_empty():
        return Markup()
    by_cell = points.rows_by_key(["label", "encoder"], named=True, unique=True)
    labels = evaluation.eligible_labels
    return render_part("matrix", k, evaluation.encoders, labels, by_cell, SHADES)


def format_change(value: float, digits: int = 3) -> str:
    """Return a difference with its sign, or without one if it rounds to 0.

    >>> format_change(0.0214), format_change(-0.5), format_change(-0.0001)
    ('+0.021', '−0.500', '0.000')
    """
    sign = "+" if round(value, digits) else ""
    return f"{value:{sign}z.{digits}f}".replace("-", "−")


PARTS: tuple[Callable[..., Any], ...] = (
    examples_needed_table,
    show_budget,
    show_left_out,
    show_matrix,
    show_picture,
    to_html,
)


# What a page may show besides results and summaries; the mappings are by corpus.
NO_CONTENT: Mapping[str, Any] = {
    "tables": {},
    "pictures": {},  # the section, the caption and the PNG file of each
    "methods": {},  # paragraphs and references
    "provenance": {},
    "commands": (),  # the shell lines that repeat the study
    "confusion_shots": (),  # k of the heat map
    "calls": {},
    "clips": {},
}


def write_page(
    path: Path,
    title: str,
    all_results: Sequence[CorpusResults],
    summaries: Mapping[str, Summary],
    **more: Any,
) -> None:
    """Write the page of a study; `more` has any of the keys of NO_CONTENT."""
    content = {**NO_CONTENT, **more}
    explained = {
        results.corpus: explain_encoders(results.evaluation.encoders)
        for results in all_results
    }
    all_results = list(map(with_names, all_results))
    corpora = []
    clips = []
    for results in all_results:
        corpus = results.corpus
        own_clips = content["clips"].get(corpus, {})
        # The page finds clips by the position of their segment.
        positions = {
            name: n for n, name in enumerate(results.evaluation.segments["segment"])
        }
        clips.append({positions[name]: clip for name, clip in own_clips.items()})
        data = {
            **corpus_data(results, summaries[corpus], content["confusion_shots"]),
            **content["calls"].get(corpus, NO_CALLS),
            "has_clips": bool(own_clips),
        }
        corpora.append(data)
    charts = {"digits": DIGITS, "corpora": corpora}
    page = get_template("page.html").render(
        content,
        all_results=all_results,
        explained=explained,
        summaries=summaries,
        title=title,
        **_read_assets(),
        headings=HEADINGS,
        figures=FIGURES,
        later_figures=LATER_FIGURES,
        has_differences=any(len(one.evaluation.differences) for one in all_results),
        max_items=MAX_ITEMS,
        **{function.__name__: function for function in PARTS},
        data={"data": to_json(charts), "clips": to_json(clips)},
    )
    with explain_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, page)


def _read_assets() -> Data:
    """Return the styles and scripts of the page, the policy that allows them alone, a licence."""
    assets = files("callshot.report.page") / "assets"
    licence, *texts = [
        (assets / name).read_text(encoding="utf-8")
        for name in (LICENCE, *STYLES, *SCRIPTS)
    ]
    hashes = []
    for text in texts:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        hashes.append(f"'sha256-{digest}'")
    count = len(STYLES)
    policy = POLICY.format(
        styles=" ".join(hashes[:count]), scripts=" ".join(hashes[count:])
    )
    return {
        "policy": policy,
        "styles": texts[:count],
        "scripts": texts[count:],
        "licence": licence,
    }
