import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise, permutations
from math import nan
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.errors import InputError, OutputError
from callshot.fewshot.protocol import Protocol
from callshot.records import (
    BudgetRow,
    ClassCount,
    ClassCurve,
    Curve,
    Embeddings,
    Evaluation,
    Folds,
    Reject,
)
from callshot.report.page.budget import show_budget, tell_next
from callshot.report.page.data import DIGITS, chart_data, class_chances, to_json
from callshot.report.page.grids import show_table
from callshot.report.page.html import clean, element, join
from callshot.report.page.sections import show_left_out, show_picture, show_provenance
from callshot.report.tables.table import Cell, Column, Table
from corpus_results import make_corpus_results, make_tables
from pages import HOSTILE, LONG, QUOTED, make_budget, make_differences, make_study, write_study

ASSETS = files("callshot.report.page") / "assets"
VOID = {"meta", "link", "img"}


class Reader(HTMLParser):
    """What a page holds: its elements, by kind, with attributes and the text directly inside."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str], list[str]]] = []
        self.open: list[tuple[str, dict[str, str], list[str]]] = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {[kind for kind, *_ in self.open]}"

    def handle_starttag(self, tag, attrs):
        one = (tag, {k: v or "" for k, v in attrs}, [])
        self.found.append(one)
        if tag not in VOID:
            self.open.append(one)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for _, _, text in self.open:
            text.append(data)

    def kinds(self, *names):
        return [
            (attributes, "".join(text)) for kind, attributes, text in self.found if kind in names
        ]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("study"))


@pytest.fixture(scope="module")
def text(study, tmp_path_factory):
    return write_study(tmp_path_factory.mktemp("page") / "report.html", study).read_text(
        encoding="utf-8"
    )


@pytest.fixture(scope="module")
def page(text):
    return Reader(text)


def make_large(classes=27, encoders=4, shots=40) -> Evaluation:
    """Return an evaluation of the size of a large study, with digits that do not compress."""
    rng, spreads = np.random.default_rng(0), ("per-query", "shared")
    names = [f"{i:02} {LONG}"[:60] for i in range(classes)]
    keys = [
        (f"encoder {e}", s, k)
        for e in range(encoders)
        for s in spreads
        for k in range(1, shots + 1)
    ]
    metrics = [
        ("all", "map"),
        ("all", "auroc"),
        ("all", "accuracy"),
        ("reduced", "map"),
        ("reduced", "auroc"),
    ]
    curve = [
        Curve("c", e, "centroid", scoring, m, s, k, *rng.random(6), 0.1, True, classes, 0)
        for e, s, k in keys
        for scoring, m in metrics
    ]
    per_class = [
        ClassCurve("c", e, "centroid", "all", m, s, k, name, *rng.random(3))
        for e, s, k in keys
        for _, m in metrics[:3]
        for name in names
    ]
    label = names * 5
    table = Embeddings(
        "e",
        np.zeros((len(label), 1)),
        [*map(str, range(len(label)))],
        label,
        label,
        [()] * len(label),
    )
    folds = Folds(np.repeat(np.arange(5), classes), 5, "built")
    counts = [ClassCount(name, 5, 4, True) for name in names]
    return Evaluation(
        "c", shots, len(label), curve, [], per_class, [], [], counts, folds, table, []
    )


# --- text


@given(st.text() | st.text("<>&\"'/;=!-ab "))
def test_any_text_comes_back_as_that_text_from_an_element_and_its_attribute(said):
    ((attributes, inside),) = Reader(element("p", said, title=said)).kinds("p")
    assert inside == clean(said)
    assert attributes["title"] == clean(said)


def test_markup_is_put_in_as_it_is_and_text_is_escaped():
    assert join("<", element("b", "&")) == "&lt;<b>&amp;</b>"
    assert element("p", hidden=True, open=False, id=None) == "<p hidden></p>"


@given(
    st.recursive(
        st.text() | st.text("<>&/\u2028") | st.floats(allow_nan=False, allow_infinity=False),
        st.lists,
    )
)
def test_json_comes_back_and_can_end_no_script(value):
    written = to_json(value)
    assert json.loads(written) == value
    assert not set(written) & set("<>&\u2028\u2029")


def test_labels_and_file_names_stay_text(text, page):
    scripts = page.kinds("script")
    assert len(scripts) == 6
    assert HOSTILE not in text
    assert "<b>bold" not in text
    assert any(HOSTILE in inside for _, inside in page.kinds("li"))
    assert any(inside == QUOTED for _, inside in page.kinds("th"))
    assert HOSTILE in json.loads(scripts[0][1])["corpora"][0]["classes"]


def test_a_file_name_that_is_no_utf_8_does_not_stop_the_page(tmp_path, study):
    corpus_results = replace(
        study["all_results"][0], rejects=[Reject("odd\udcff\x00.wav", 1, "no audio")]
    )
    path = write_study(tmp_path / "report.html", {**study, "all_results": [corpus_results]})
    assert "odd\ufffd\ufffd.wav" in path.read_text(encoding="utf-8")


# --- data


def test_points_are_those_of_the_curves_rounded_once(study):
    for corpus, corpus_results in zip(
        chart_data(study["all_results"])["corpora"], study["all_results"], strict=True
    ):
        metrics = list(
            dict.fromkeys((c.scoring, c.metric) for c in corpus_results.evaluation.curve)
        )
        for c in corpus_results.evaluation.curve:
            at = (metrics.index((c.scoring, c.metric)), corpus["spreads"].index(c.spread))
            line = corpus["lines"][f"{at[0]}.{at[1]}.{corpus['encoders'].index(c.encoder)}"]
            told = [row[corpus["shots"].index(c.k)] for row in line]
            assert told == [float(f"{x:.{DIGITS}f}") for x in (c.mean, c.p01, c.p99)]


def test_points_of_a_class_are_those_of_its_curve(study):
    corpus, found = chart_data(study["all_results"])["corpora"][0], study["all_results"][0].evaluation
    order = [m["name"] for m in corpus["metrics"]]
    assert order[0] == "mAP"
    assert set(order) == {"mAP", "AUROC", "accuracy", "reduced mAP", "reduced AUROC"}
    for c in found.per_class:
        metric = order.index({"map": "mAP", "auroc": "AUROC", "accuracy": "accuracy"}[c.metric])
        place = (corpus["spreads"].index(c.spread), corpus["encoders"].index(c.encoder))
        line = corpus["lines"][f"{metric}.{place[0]}.{place[1]}.{corpus['classes'].index(c.label)}"]
        assert line[0][corpus["shots"].index(c.k)] == round(c.mean, DIGITS)


def test_what_is_not_a_number_is_null(study):
    corpus_results = study["all_results"][1]
    curve = [replace(c, mean=nan, p01=-0.00001) for c in corpus_results.evaluation.curve]
    odd = replace(corpus_results, evaluation=replace(corpus_results.evaluation, curve=curve))
    line = chart_data([odd])["corpora"][0]["lines"]["0.0.0"]
    assert set(line[0]) == {None}
    assert "-0.0" not in to_json(line)
    assert "null" in to_json(line)


def test_chance_of_the_classes_averages_to_that_of_the_curve():
    labels = [("rumble", "roar"), ("roar",), ("trumpet",)] * 24
    tables = [replace(t, labels=labels[: len(t)]) for t in make_tables()]
    found = make_corpus_results(
        tables, protocol=Protocol(shots=(1,), draws=2, bootstraps=5, shared_draws=2)
    ).evaluation
    told = next(c.chance for c in found.curve if c.metric == "map")
    assert np.mean(list(class_chances(found).values())) == pytest.approx(told, abs=1e-12)


def test_the_chance_of_a_class_counts_all_queries_that_it_overlaps_fold_by_fold():
    labels = {  # fold: what overlaps each of its segments, the label at the centre first
        0: [("roar", "bark"), ("roar",), ("bark",), ("bark", "roar"), ("out", "roar")],
        1: [("bark",), ("roar",), ("roar",), ("roar",)],
        -1: [("roar", "bark")] * 3,
    }
    rows = [row for part in labels.values() for row in part]
    fold = np.array([number for number, part in labels.items() for _ in part])
    table = Embeddings(
        "e", np.zeros((12, 1)), [*map(str, range(12))], ["r"] * 12, [row[0] for row in rows], rows
    )
    counts = [ClassCount(name, 6, 3, name != "out") for name in ("roar", "bark", "out")]
    found = Evaluation("c", 3, 8, [], [], [], [], [], counts, Folds(fold, 2, "given"), table, [])

    def chance(positives, queries):
        """Return the mean AP over all orders of the queries, one after the other."""
        truths = list(permutations([True] * positives + [False] * (queries - positives)))
        return np.mean(
            [np.mean([sum(t[: i + 1]) / (i + 1) for i in range(queries) if t[i]]) for t in truths]
        )

    wanted = {"roar": (chance(3, 4) + chance(3, 4)) / 2, "bark": (chance(3, 4) + chance(1, 4)) / 2}
    assert class_chances(found) == pytest.approx(wanted, abs=1e-12)
    alone = replace(
        found, segments=replace(table, labels=[()] * 12)
    )  # the label at the centre is its own
    wanted = {"roar": (chance(2, 4) + chance(3, 4)) / 2, "bark": (chance(2, 4) + chance(1, 4)) / 2}
    assert class_chances(alone) == pytest.approx(wanted, abs=1e-12)


def test_rivals_and_differences_are_found_by_their_places(study):
    corpus = chart_data(study["all_results"])["corpora"][0]
    first = corpus["baselines"][0]
    assert first == {"name": "LR", "kind": "logistic", "encoder": 0, "metric": 0, "value": 0.76}
    d = next(make_differences(study["all_results"][0].evaluation))
    line = corpus["differences"]["0.0.0"]
    assert corpus["pairs"] == [["birdnet-v2.4", "mfcc"]]
    assert [row[0] for row in line] == [round(x, DIGITS) for x in (d.mean, d.p01, d.p99, d.wins)]


# --- structure


def test_the_answer_comes_first_and_the_commands_last(page):
    order = [attributes["id"] for attributes, _ in page.kinds("section")]
    assert order == [
        "answer",
        "curves",
        "tables",
        "budget",
        "differences",
        "pictures",
        "left-out",
        "provenance",
        "repeat",
    ]
    lead = next(
        inside for attributes, inside in page.kinds("p") if attributes.get("class") == "lead"
    )
    assert lead.startswith("On reserve, birdnet-v2.4 with 3 examples")


def test_headings_descend_one_level_at_a_time(page):
    levels = [int(kind[1]) for kind, *_ in page.found if re.fullmatch("h[1-6]", kind)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))


def test_every_id_is_one_and_every_reference_finds_its_own(page):
    every = [attributes for _, attributes, _ in page.found]
    ids = [a["id"] for a in every if "id" in a]
    assert len(ids) == len(set(ids))
    wanted = {a["aria-labelledby"] for a in every if "aria-labelledby" in a}
    assert wanted | {a["href"][1:] for a in every if a.get("href", "").startswith("#")} <= set(ids)


def test_nothing_is_fetched_and_only_our_own_scripts_may_run(text, page):
    policy = next(
        a["content"]
        for a, _ in page.kinds("meta")
        if a.get("http-equiv") == "Content-Security-Policy"
    )
    shape = re.sub("( 'sha256-[^']+')+", " HASHES", policy)
    assert shape == (
        "default-src 'none'; script-src HASHES; style-src HASHES; img-src data:; base-uri 'none'; form-action 'none'"
    )
    run = [inside for attributes, inside in page.kinds("script") if "type" not in attributes]
    for inside in [*run, *(style for _, style in page.kinds("style"))]:
        assert base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode() in policy
    sources = [a.get("src") or a.get("href") for _, a, _ in page.found if "src" in a or "href" in a]
    assert all(s.startswith(("#", "data:")) for s in sources)
    assert not any("style" in a or any(key.startswith("on") for key in a) for _, a, _ in page.found)


def test_the_page_says_its_language_and_what_to_do_without_scripts(page):
    assert page.kinds("html")[0][0]["lang"] == "en"
    assert "without scripts" in page.kinds("noscript")[0][1]


def test_equal_studies_give_equal_bytes(tmp_path, study, text):
    again = write_study(tmp_path / "again.html", study)
    assert again.read_bytes() == text.encode()
    assert [path.name for path in tmp_path.iterdir()] == ["again.html"]


def test_a_chapter_with_curves_alone_leaves_the_other_sections_out(tmp_path):
    corpus_results = make_corpus_results(
        make_tables(encoders=("one",)), protocol=Protocol(shots=(1,), draws=2, bootstraps=5)
    )
    nothing = {"answers": {}, "tables": {}, "pictures": {}, "provenance": {}, "commands": []}
    path = write_study(
        tmp_path / "report.html", {"title": "t", "all_results": [corpus_results], **nothing}
    )
    found = Reader(path.read_text(encoding="utf-8"))
    assert [a["id"] for a, _ in found.kinds("section")] == ["answer", "curves", "left-out"]
    assert not found.kinds("h3")


def test_a_large_study_is_small_enough_to_send(tmp_path):
    found = make_large()
    corpus_results = replace(
        make_corpus_results(), evaluation=found, budget=list(make_budget(found))
    )
    nothing = {"answers": {}, "tables": {}, "pictures": {}, "provenance": {}, "commands": []}
    path = write_study(
        tmp_path / "report.html", {"title": "t", "all_results": [corpus_results], **nothing}
    )
    assert path.stat().st_size < 1_500_000


# --- tables


GRID = Table(
    "results",
    "Results",
    [Column("k"), Column("mAP", "one"), Column("AUROC", "one"), Column("mAP", "two")],
    [
        [Cell("1", 1), Cell("0.5", 0.5, 1), Cell("–"), Cell("0.7", 0.7)],
        [Cell("5", 5, mark="⋆"), Cell("0.6", 0.6, 2), Cell("–", nan), Cell("0.8", 0.8)],
        [Cell("LR"), Cell("0.55", 0.55), Cell("–"), Cell("0.9", 0.9)],
    ],
    1,
    [("⋆", "k* is 4")],
)


def test_groups_span_their_columns_and_every_heading_knows_its_column():
    heads = Reader(show_table(GRID, "t")).kinds("th")
    spans = [(inside, a["colspan"]) for a, inside in heads if "colspan" in a]
    assert spans == [("one", "2"), ("two", "1")]
    columns = [
        (inside, a["data-column"], a.get("rowspan")) for a, inside in heads if "data-column" in a
    ]
    assert columns == [
        ("k", "0", "2"),
        ("mAP", "1", None),
        ("AUROC", "2", None),
        ("mAP", "3", None),
    ]


def test_underlines_marks_notes_and_the_foot_are_those_of_the_table():
    shown = show_table(GRID, "t")
    page = Reader(shown)
    assert [(a["class"], inside) for a, inside in page.kinds("u")] == [("u1", "0.5"), ("u2", "0.6")]
    assert "⋆ k* is 4" in page.kinds("ul")[0][1]
    assert page.kinds("tfoot")[0][1] == "LR0.55–0.9"
    assert [a.get("data-value") for a, _ in page.kinds("td")][:3] == ["0.5", None, "0.7"]
    assert "nan" not in shown


def test_a_table_without_groups_has_one_row_of_headings():
    table = Table("t", "T", [Column("a"), Column("b")], [[Cell("x"), Cell("2", 2)]])
    page = Reader(show_table(table, "t"))
    assert len(page.kinds("tr")) == 2
    assert not page.kinds("tfoot")


# --- the other sections


def worth(label, gain, encoder="one", value=0.5) -> BudgetRow:
    return BudgetRow(
        "c", encoder, label, "map", 9, 4, value, gain, 2 * gain, value + 3 * gain, 0.01
    )


def test_the_class_that_gains_most_is_named_first_and_those_that_cannot_tell_come_last():
    rows = [worth("roar", 0.01), worth("growl", nan), worth("rumble", 0.03), worth("bark", -0.01)]
    assert (
        tell_next(rows)
        == "With one, “rumble” gains most from its next example: about +0.0300 on an AP of 0.500 with 4."
    )
    labels = [t for a, t in Reader(show_budget(rows)).kinds("span") if a["class"] == "label"]
    assert labels == ["rumble", "roar", "bark", "growl"]
    widths = [a["width"] for a, _ in Reader(show_budget(rows)).kinds("rect")]
    assert widths == ["100.0%", "33.3%", "0.0%", "0.0%"]


def test_where_no_class_gains_the_budget_says_so():
    told = tell_next([worth("roar", nan), worth("bark", -0.1)])
    assert told == "With one, no class is known to gain 0.01 of AP by twice as many examples."


def test_a_gain_that_is_little_or_noise_is_no_headline():
    noise = replace(worth("bark", 0.05), error=0.2)
    assert "no class" in tell_next([worth("roar", 0.03), noise])
    assert "no class" in tell_next([worth("roar", 0.004)])
    notes = [
        inside for _, inside in Reader(show_budget([worth("roar", 0.03), noise])).kinds("small")
    ]
    assert notes[0].endswith("too noisy to tell: its points lie 0.200 off the curve")
    assert "noisy" not in notes[1]


def test_a_class_without_any_complete_shot_says_so():
    none = replace(worth("roar", nan, value=nan), k=0)
    assert "9 exemplars, and no evaluated shot" in show_budget([none])


def test_the_encoder_that_scores_best_is_open():
    rows = [
        worth("roar", 0.1, "weak", 0.3),
        worth("roar", 0.01, "strong", 0.8),
        worth("roar", 0.1, "none", nan),
    ]
    told = [("open" in a, inside) for a, inside in Reader(show_budget(rows)).kinds("details")]
    assert [is_open for is_open, _ in told] == [True, False, False]
    assert "strong" in told[0][1]
    assert "none" in told[2][1]


def test_the_first_200_rejects_are_shown_and_all_are_counted(page):
    details = [inside for _, inside in page.kinds("details") if "rows and files left out" in inside]
    assert len(details) == 2
    assert details[0].startswith("250 rows and files left out")
    assert details[0].count("too short") == 200


def test_where_nothing_was_left_out_the_page_says_so():
    assert "Nothing was left out" in show_left_out(make_corpus_results(), "left")


def test_an_ineligible_class_is_listed_with_its_reason():
    corpus_results = make_corpus_results()
    counts = [
        *corpus_results.evaluation.classes,
        ClassCount("bark", 2, 0, False, "in 2 recordings, 5 are needed"),
    ]
    shown = show_left_out(
        replace(corpus_results, evaluation=replace(corpus_results.evaluation, classes=counts)),
        "left",
    )
    assert "in 2 recordings, 5 are needed" in shown


def test_provenance_of_any_depth_is_written_out():
    shown = show_provenance(
        {"a": [1, None, True], "b": [{"c": [[1], "x"]}], "d": {}, "e": Path("p"), "f": []}
    )
    told = [inside for _, inside in Reader(shown).kinds("dd")]
    assert told == ["1, none, true", "c1x", "1x", "", "p", "none"]


def test_a_picture_is_in_the_page_with_its_size(study, page):
    ((image, _),) = page.kinds("img")
    data = study["pictures"]["reserve"][0][1].read_bytes()
    assert base64.b64decode(image["src"].removeprefix("data:image/png;base64,")) == data
    assert (image["width"], image["height"], image["loading"]) == ("1200", "400", "lazy")


def test_a_picture_that_is_no_png_is_refused(tmp_path):
    (tmp_path / "sweep.png").write_bytes(b"GIF89a")
    with pytest.raises(InputError, match=r"sweep\.png: .* must be a PNG"):
        show_picture("sweep", tmp_path / "sweep.png")


def test_a_page_that_cannot_be_written_is_one_line(tmp_path, study):
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="is not a folder"):
        write_study(tmp_path / "file" / "report.html", study)


# --- what others wrote


def test_third_party_files_are_the_ones_that_were_noted(text):
    noted = re.findall(
        r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$",
        (ASSETS / "THIRD-PARTY.md").read_text(),
        re.MULTILINE,
    )
    assert [name for name, _ in noted] == [
        "uPlot.iife.min.js",
        "uPlot.min.css",
        "uPlot.LICENSE.txt",
    ]
    for name, told in noted:
        assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == told
    assert "Permission is hereby granted" in text


def test_points_of_other_classifiers_are_those_of_their_curves(study):
    for corpus_results, corpus in zip(
        study["all_results"], chart_data(study["all_results"])["corpora"], strict=True
    ):
        assert corpus["classifiers"] == ["cosine", "logistic at k"]
        encoders = list(dict.fromkeys(c.encoder for c in corpus_results.evaluation.curve))
        assert sum(".c" in key for key in corpus["lines"]) == len(
            {
                (c.classifier, c.encoder, c.scoring, c.metric, c.spread)
                for c in corpus_results.others.curve
            }
        )
        for c in corpus_results.others.curve:
            if (c.scoring, c.metric, c.spread) == ("all", "map", "shared"):
                rule, spread = (
                    ["cosine", "logistic"].index(c.classifier),
                    corpus["spreads"].index("shared"),
                )
                line = corpus["lines"][f"0.{spread}.{encoders.index(c.encoder)}.c{rule}"]
                assert [row[corpus["shots"].index(c.k)] for row in line] == [
                    round(x, 4) for x in (c.mean, c.p01, c.p99)
                ]


def test_without_other_classifiers_there_are_none_to_choose():
    (corpus,) = chart_data([make_corpus_results()])["corpora"]
    assert corpus["classifiers"] == []
