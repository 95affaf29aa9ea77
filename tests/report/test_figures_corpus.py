"""Every figure of a chapter: what is drawn is what was found, and no text is clipped or covered."""

from dataclasses import replace
from functools import lru_cache
from itertools import combinations, product

import numpy as np
import pytest

from callshot.fewshot.folds import complete_shots, count_classes
from callshot.records import (
    Baseline,
    ClassCurve,
    Confusion,
    CorpusResults,
    CorpusStats,
    Crossover,
    Curve,
    Difference,
    Embeddings,
    Evaluation,
    Folds,
    RefinementStep,
    Values,
)
from callshot.report.figures import draw_figures, plan_figures
from callshot.report.figures.figure_io import blank, render
from corpus_results import make_durations, make_tables

THREE_ENCODERS, THREE_SHOTS = ("birdnet-v2.4", "mfcc", "random"), (1, 2, 3, 5, 20)
PAPER_IN, SMALLEST_PT = (7.2, 9.3), 6.5
STRANGE = (
    "ゾウの低い声",
    "أصوات الفيل",
    "$5 and $x^{2$",
    "two\nlines",
    "<script>alert(1)</script>",
    "W" * 60,
    "плач",
    "{\\a_b%",
)
SIXTY = tuple(
    f"{word} {'of a female with calves, heard from afar at the water'[: 57 - len(word)]} {i:02}"
    for i, word in enumerate(("rumble", "roar", "trumpet") * 9)
)


def make_corpus_results(
    labels, encoders, shots, *, folds=5, spreads=("per-query", "shared"), reduced=False
) -> CorpusResults:
    """Return a chapter as `evaluate` would, out of made-up numbers: a curve that grows with k, and its noise."""
    tables = make_tables(labels, encoders, recordings=folds + 2, each=2)
    fold = np.array([int(r.split()[1]) for r in tables[0].recording])
    tables = [uneven(table, fold) for table in tables]
    fold = np.array([int(r.split()[1]) for r in tables[0].recording])
    given = Folds(np.where(fold < folds, fold, -1), folds, "given")
    counts = count_classes(tables[0].label, given)
    rng, scorings = np.random.default_rng(0), ("all", "reduced") if reduced else ("all",)
    values = [
        make_values(rng, i, *key, shots)
        for i, *key in (
            (i, e, s, m, p)
            for i, e in enumerate(encoders)
            for s, m, p in product(scorings, ("map", "auroc"), spreads)
        )
    ]
    best, some = complete_shots(counts), [k for k in shots if k in (1, 5, 20)]
    per_class = [
        make_class_point(v, k, n, name)
        for v in values
        if v.scoring == "all"
        for k in shots
        for n, name in enumerate(labels)
    ]
    confusion = [
        Confusion(e, k, a, b, 3.0 * labels.index(a) + 20.0 * (a == b))
        for e, k, a, b in product(encoders, some, labels, labels)
    ]
    curve = [make_point(v, s, k, best, counts) for v in values for s, k in enumerate(shots)]
    evaluation = Evaluation(
        "c", best, 9, curve, values, per_class, confusion, [], counts, given, tables[0], []
    )
    baselines = [
        Baseline("c", e, kind, kind.upper(), "all", "map", 0.5 + 0.02 * i)
        for e, (i, kind) in product(encoders, enumerate(("logistic", "recurrent")))
    ]
    baselines.append(Baseline("c", "", "end-to-end", "AERD with a long name", "all", "map", 0.51))
    differences = [d for a, b in combinations(encoders, 2) for d in make_differences(values, a, b)]
    span = make_durations([1.0])
    facts = CorpusStats((16000.0,), (1,), ("WAV",), len(labels), 1.0, 0.0, span, span, span, span)
    return CorpusResults(
        evaluation,
        facts,
        span,
        tables,
        baselines,
        differences,
        (),
        None,
        (),
        (),
        make_others(evaluation),
        [
            Crossover("c", e, "logistic", "k", "all", "map", "shared", shots[-1], None)
            for e in encoders
        ],
        [
            RefinementStep("c", e, "all", m, step, 0.5 + 0.01 * i + step / 1e6, 2.0)
            for i, e in enumerate(encoders)
            for m in ("map", "auroc")
            for step in (0, 1, 2, 5, 90000)
        ],
    )


def make_others(found) -> Evaluation:
    """Return the curves of other rules, and of logistic regression on fewer draws of the spread `shared`."""
    curve, values = [], []
    for n, name in enumerate(("cosine", "cl2n", "whitened", "neighbour", "medoid", "logistic")):
        at_k = name == "logistic"
        curve += [
            replace(c, classifier=name, mean=c.mean + 0.01 * (n - 2))
            for c in found.curve
            if c.spread == "shared" or not at_k
        ]
        values += [
            replace(v, classifier=name, value=(v.value + 0.01 * (n - 2))[:, : 40 if at_k else None])
            for v in found.values
            if v.spread == "shared" or not at_k
        ]
    return replace(found, curve=curve, values=values)


def uneven(table, fold) -> Embeddings:
    """Take the second segment of the later labels out of the first folds: classes differ in size."""
    names = list(dict.fromkeys(table.label))
    rows = [
        i for i in range(len(table)) if i % 2 == 0 or fold[i] >= names.index(table.label[i]) % 4
    ]
    columns = (
        [column[i] for i in rows]
        for column in (table.segment, table.recording, table.label, table.labels)
    )
    return Embeddings(table.encoder, table.vectors[rows], *columns)


def make_values(rng, i, encoder, scoring, metric, spread, shots) -> Values:
    mean = 0.9 - 0.1 * i - 0.5 / (1 + np.arange(len(shots)))[:, None]
    noise = rng.normal(size=(len(shots), 60)) * (0.05 if spread == "shared" else 0.02)
    return Values("c", encoder, "centroid", scoring, metric, spread, np.array(shots), mean + noise)


def make_point(values, s, k, best, counts) -> Curve:
    row = values.value[s]
    levels = np.percentile(row, (1, 25, 50, 75, 99)).tolist()
    new = sum(c.complete_to_k >= k for c in counts)
    key = (
        values.corpus,
        values.encoder,
        values.classifier,
        values.scoring,
        values.metric,
        values.spread,
    )
    return Curve(*key, k, float(row.mean()), *levels, 0.1, k <= best, new, 0)


def make_class_point(values, k, n, name) -> ClassCurve:
    mean = 1 - 0.6 / (1 + k) - 0.01 * n
    return ClassCurve(
        "c",
        values.encoder,
        "centroid",
        "all",
        values.metric,
        values.spread,
        k,
        name,
        mean,
        mean - 0.1,
        mean + 0.05,
    )


def make_differences(values, one, other) -> list[Difference]:
    of = {(v.encoder, v.scoring, v.metric, v.spread): v for v in values}
    found = []
    for v in (v for v in values if v.encoder == one):
        gap = v.value - of[other, v.scoring, v.metric, v.spread].value
        levels = np.percentile(gap, (1, 25, 50, 75, 99), axis=1).T
        found += [
            Difference(
                "c",
                one,
                other,
                v.scoring,
                v.metric,
                v.spread,
                k,
                float(g.mean()),
                *level,
                float((g > 0).mean()),
            )
            for k, g, level in zip(v.k.tolist(), gap, levels.tolist(), strict=True)
        ]
    return found


@lru_cache
def chapter_of(case) -> CorpusResults:
    if case == "27 classes, 60 letters, 4 encoders, 40 shots":
        return make_corpus_results(
            SIXTY, ("perch-v2", "perch-v1", "hubert-base-l2", "mfcc"), tuple(range(1, 41)), folds=10
        )
    if case == "names that no font and no markup likes":
        return make_corpus_results(
            STRANGE, ("象", "M" * 90, "$mfcc$", "x\ny"), (1, 2, 5, 10, 100, 100000)
        )
    if case == "12 encoders with long names":
        encoders = tuple(
            f"hubert-base[layer={n},frames=mean,of=a long name that goes on and on]"
            for n in range(12)
        )
        return make_corpus_results(SIXTY[:12], encoders, (1, 2, 5))
    if case == "60 classes":
        return make_corpus_results(
            tuple(f"class {n}" for n in range(60)), ("one", "two", "three"), THREE_SHOTS
        )
    if case == "three and three":
        return make_corpus_results(
            ("rumble", "roar", "trumpet"), THREE_ENCODERS, THREE_SHOTS, reduced=True
        )
    return make_corpus_results(("a", "$x^{2$"), ("one",), (1,), spreads=("shared",))


CASES = (
    "27 classes, 60 letters, 4 encoders, 40 shots",
    "names that no font and no markup likes",
    "three and three",
    "one pair",
)


@lru_cache
def texts_of(case, stems=("",)) -> dict:
    """Return every figure by its stem, with the boxes in inches of all texts that are drawn."""
    found = {}
    for plate in plan_figures(chapter_of(case), confusion_at=(5,)):
        if not plate.stem.startswith(stems):
            continue
        with blank() as figure:
            plate.compose(figure)
            found[plate.stem] = figure, written_on(figure)
    return found


def figures_of(case) -> dict:
    return {stem: figure for stem, (figure, _) in texts_of(case).items()}


def written_on(figure):
    """Return the texts that are drawn, and their boxes in inches."""
    from matplotlib.text import Text

    texts, draw = [], Text.draw
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Text, "draw", lambda self, renderer: texts.append(self) or draw(self, renderer)
        )
        figure.draw_without_rendering()
    seen = [text for text in dict.fromkeys(texts) if text.get_visible() and text.get_text().strip()]
    return {text: Text.get_window_extent(text).extents / figure.dpi for text in seen}


def over(a, b, slack=0.006) -> bool:
    return (
        a[0] < b[2] - slack and b[0] < a[2] - slack and a[1] < b[3] - slack and b[1] < a[3] - slack
    )


TRAINED = ("training", "rules", "refinement")


@pytest.mark.parametrize("case", CASES)
def test_no_text_is_clipped_covered_or_too_small_and_every_figure_fits_a_page(case):
    look_over(texts_of(case))


@pytest.mark.parametrize("case", ["12 encoders with long names", "60 classes"])
def test_what_training_does_fits_a_page_whatever_the_number_of_encoders_and_classes(case):
    drawn = texts_of(case, TRAINED)
    assert {stem.partition("-")[0] for stem in drawn} == set(TRAINED)
    look_over(drawn)


def look_over(drawn):
    for stem, (figure, boxes) in drawn.items():
        wide, high = figure.get_size_inches()
        assert wide <= PAPER_IN[0] + 1e-9, stem
        assert high <= PAPER_IN[1], stem
        for text, (left, bottom, right, top) in boxes.items():
            inside = (
                left >= -0.01 and bottom >= -0.01 and right <= wide + 0.01 and top <= high + 0.01
            )
            assert inside, (stem, text.get_text(), (left, bottom, right, top))
            assert text.get_fontsize() >= SMALLEST_PT, (stem, text.get_text())
        covered = [
            (a.get_text(), b.get_text())
            for (a, x), (b, y) in combinations(boxes.items(), 2)
            if over(x, y)
        ]
        assert not covered, stem


def test_a_chapter_has_every_figure_that_makes_sense():
    every = [
        "episode",
        "sweep",
        "reduced",
        "inset",
        "classes",
        "spreads",
        "differences",
        *TRAINED,
        "confusion",
        "map",
    ]
    assert list(figures_of("three and three")) == every
    assert list(figures_of("one pair")) == [
        "episode",
        "sweep",
        "classes",
        *TRAINED,
        "confusion",
        "map",
    ]
    without = replace(chapter_of("one pair"), others=None, crossovers=(), refinement=())
    assert [plate.stem for plate in plan_figures(without)] == [
        "episode",
        "sweep",
        "classes",
        "confusion",
        "map",
    ]
    rules = replace(without, others=chapter_of("one pair").others.under(["cosine"]))
    assert {plate.stem for plate in plan_figures(rules)} & set(TRAINED) == {"rules"}


def test_figures_are_written_as_pdf_and_png_and_equal_chapters_give_equal_bytes(tmp_path):
    names = draw_figures(chapter_of("one pair"), tmp_path / "one", metric="auroc")
    assert sorted(names) == sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names[:4] == ["episode.pdf", "episode.png", "sweep.pdf", "sweep.png"]
    for plate in plan_figures(chapter_of("one pair"), metric="auroc"):
        if plate.stem in ("episode", "map"):  # the two that make something of vectors
            for path in render(plate, tmp_path / "two"):
                assert path.read_bytes() == (tmp_path / "one" / path.name).read_bytes()


def test_what_does_not_fit_a_page_is_several():
    stems = [plate.stem for plate in plan_figures(chapter_of(CASES[0]))]
    assert [stem for stem in stems if stem.startswith("confusion")] == [
        "confusion-1",
        "confusion-2",
        "confusion-3",
    ]
    assert "classes" in stems


def test_the_inset_has_a_panel_per_encoder_and_a_violin_per_shot_up_to_seven():
    from matplotlib.collections import PolyCollection

    figure = figures_of("three and three")["inset"]
    panels = [at for at in figure.axes if at.get_title(loc="left")]
    assert [at.get_title(loc="left") for at in panels] == ["birdnet-v2.4", "mfcc", "random"]
    for at in panels:
        assert sum(isinstance(c, PolyCollection) for c in at.collections) == 4
        assert [label.get_text() for label in at.get_xticklabels()] == ["1", "2", "3", "5"]


def test_classes_come_by_exemplars_with_a_line_per_encoder_and_the_end_of_complete_support():
    corpus_results, figure = chapter_of("three and three"), figures_of("three and three")["classes"]
    for at, count in zip(figure.axes, corpus_results.evaluation.classes, strict=True):
        assert at.get_title(loc="left") == f"{count.label}\n{count.exemplars} exemplars"
        lines = [line for line in at.lines if len(line.get_xdata()) == 5]
        points = [
            c
            for c in corpus_results.evaluation.per_class
            if (c.label, c.metric, c.spread) == (count.label, "map", "per-query")
        ]
        assert [list(line.get_ydata()) for line in lines] == [
            [c.mean for c in points[i : i + 5]] for i in (0, 5, 10)
        ]
        edge = sum(k <= count.complete_to_k for k in THREE_SHOTS) - 0.5
        assert [line.get_xdata()[0] for line in at.lines if len(line.get_xdata()) == 2] == [edge]


def test_the_spreads_are_drawn_with_their_widths_below():
    points = [
        c
        for c in chapter_of("three and three").evaluation.curve
        if (c.encoder, c.metric, c.scoring) == ("mfcc", "map", "all")
    ]
    lower = figures_of("three and three")["spreads"].axes[4]
    for line, spread in zip(lower.lines, ("per-query", "shared"), strict=True):
        assert list(line.get_ydata()) == [c.p99 - c.p01 for c in points if c.spread == spread]


def test_differences_are_drawn_about_zero_with_the_share_of_wins():
    corpus_results, figure = (
        chapter_of("three and three"),
        figures_of("three and three")["differences"],
    )
    upper, lower = figure.axes[1], figure.axes[4]
    rows = [
        d
        for d in corpus_results.differences
        if (d.one, d.other, d.scoring, d.metric, d.spread)
        == ("birdnet-v2.4", "random", "all", "map", "shared")
    ]
    assert upper.get_title(loc="left") == "birdnet-v2.4\nless random"
    assert [d.mean for d in rows] in [list(line.get_ydata()) for line in upper.lines]
    assert [0.0, 0.0] in [list(line.get_ydata()) for line in upper.lines]
    assert [d.wins for d in rows] in [list(line.get_ydata()) for line in lower.lines]
    assert upper.get_ylim()[0] < 0 < upper.get_ylim()[1]


def test_training_is_drawn_on_the_same_draws_with_the_difference_and_its_crossings_below():
    corpus_results, figure = (
        chapter_of("three and three"),
        figures_of("three and three")["training"],
    )
    upper, lower = figure.axes[1], figure.axes[4]
    key = ("mfcc", "all", "map", "shared")
    centroid, logistic = (
        next(
            v
            for v in values
            if (v.encoder, v.scoring, v.metric, v.spread) == key and v.classifier == name
        ).value
        for values, name in (
            (corpus_results.evaluation.values, "centroid"),
            (corpus_results.others.values, "logistic"),
        )
    )
    assert logistic.shape[1] == 40
    drawn = [list(line.get_ydata()) for line in upper.lines]
    assert centroid[:, :40].mean(axis=1).tolist() in drawn
    assert logistic.mean(axis=1).tolist() in drawn
    assert (logistic - centroid[:, :40]).mean(axis=1).tolist() in [
        list(line.get_ydata()) for line in lower.lines
    ]
    for at in (upper, lower):
        assert [4, 4] in [
            list(line.get_xdata()) for line in at.lines
        ]  # the crossing, at the last of five shots
    assert lower.get_title(loc="left") == "logistic at k is ahead from k = 20 on"
    assert {text.get_text() for text in upper.texts} >= {"LOGISTIC", "RECURRENT"}


def test_the_rules_are_drawn_beside_the_centroid_which_comes_first():
    corpus_results, figure = chapter_of("three and three"), figures_of("three and three")["rules"]
    points = [
        c
        for c in (*corpus_results.evaluation.curve, *corpus_results.others.curve)
        if (c.encoder, c.scoring, c.metric, c.spread) == ("mfcc", "all", "map", "shared")
    ]
    lines = [list(line.get_ydata()) for line in figure.axes[1].lines if len(line.get_xdata()) == 5]
    assert lines == [[c.mean for c in points[i : i + 5]] for i in range(0, 35, 5)]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[:7] == [
        "centroid",
        "cosine",
        "CL2N",
        "whitened",
        "neighbour",
        "medoid",
        "logistic at k",
    ]


def test_the_refinement_goes_from_the_centroid_to_logistic_regression_by_steps():
    figure = figures_of("three and three")["refinement"]
    first, second = figure.axes
    assert (first.get_ylabel(), second.get_ylabel()) == ("mAP", "AUROC")
    assert [list(np.round(line.get_xdata(), 3)) for line in first.lines] == [
        [0, 1, 1.301, 1.699, 5.954]
    ] * 3
    assert list(first.lines[1].get_ydata()) == [0.51 + step / 1e6 for step in (0, 1, 2, 5, 90000)]
    assert [label.get_text() for label in first.get_xticklabels()] == [
        "0",
        "1",
        "10",
        "100",
        "1 000",
        "10 000",
    ]
    assert [text.get_text() for text in first.texts] == ["centroid", "logistic regression"]


def test_confusion_is_a_share_of_each_row_with_counts_where_there_is_room():
    figure = figures_of("three and three")["confusion"]
    first = figure.axes[0]
    assert np.allclose(first.images[0].get_array().sum(axis=1), 1)
    assert np.allclose(np.diag(first.images[0].get_array()), [20 / 20, 23 / 29, 26 / 38])
    assert [text.get_text() for text in first.texts[:3]] == ["20.0", "0.0", "0.0"]
    assert not figures_of(CASES[0])["confusion"].axes[0].texts


def test_confusion_at_a_shot_that_was_not_evaluated_gives_way_to_the_last():
    plates = plan_figures(chapter_of("three and three"), confusion_at=(4, 7))
    with blank() as figure:
        next(plate for plate in plates if plate.stem == "confusion").compose(figure)
    assert [at.get_title(loc="left") for at in figure.axes[:3]] == [
        f"{e}, k = 20" for e in ("birdnet-v2.4", "mfcc", "random")
    ]


def test_few_labels_are_named_on_the_map_and_many_are_numbered_and_listed():
    few, many = figures_of("three and three")["map"], figures_of(CASES[0])["map"]
    assert [text.get_text() for text in few.axes[0].texts] == ["rumble", "roar", "trumpet"]
    assert not few.legends
    assert [text.get_text() for text in many.axes[0].texts] == [str(i) for i in range(1, 28)]
    assert len(many.legends[0].get_texts()) == 27


def test_undefined_values_leave_gaps_in_every_figure():
    corpus_results = chapter_of("three and three")
    old, nothing = corpus_results.evaluation, float("nan")
    lost = {"mean": nothing, "p01": nothing, "p99": nothing}
    quartiles = {"p25": nothing, "p50": nothing, "p75": nothing}
    evaluation = replace(
        old,
        curve=[replace(c, **lost, **quartiles) for c in old.curve],
        per_class=[replace(c, **lost) for c in old.per_class],
        values=[replace(v, value=v.value * nothing) for v in old.values],
    )
    differences = [
        replace(d, wins=nothing, **lost, **quartiles) for d in corpus_results.differences
    ]
    others = replace(
        corpus_results.others,
        curve=[replace(c, **lost) for c in corpus_results.others.curve],
        values=[replace(v, value=v.value * nothing) for v in corpus_results.others.values],
    )
    steps = [replace(r, value=nothing) for r in corpus_results.refinement]
    emptied = {
        "evaluation": evaluation,
        "differences": differences,
        "others": others,
        "refinement": steps,
    }
    for plate in plan_figures(replace(corpus_results, **emptied)):
        if plate.stem in ("sweep", "inset", "classes", "spreads", "differences", *TRAINED):
            with blank() as figure:
                plate.compose(figure)
                figure.draw_without_rendering()
