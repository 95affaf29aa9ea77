import base64
import hashlib
import json
import re
from dataclasses import replace
from importlib.resources import files
from itertools import permutations
from math import nan

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.errors import InputError
from callshot.records import ClassCount, Evaluation, Folds, Reject
from callshot.records.frames import BUDGET
from callshot.report.encoder_names import with_names
from callshot.report.page import (
    DIGITS,
    SCRIPTS,
    class_chances,
    clean,
    corpus_data,
    render_part,
    show_budget,
    show_matrix,
    show_picture,
    to_json,
)
from callshot.report.summary import write_summary
from callshot.report.tables.corpus_tables import examples_needed_table
from callshot.report.tables.table import Cell, Column, Table, to_html
from callshot.vectors import Vectors
from corpus_results import make_corpus_results, make_rows, replace_frames
from pages import HOSTILE, QUOTED, Reader, write_study
from summaries import class_budget

ASSETS = files("callshot.report.page") / "assets"


@pytest.fixture(scope="module")
def text(study, tmp_path_factory):
    return write_study(
        tmp_path_factory.mktemp("page") / "report.html", study
    ).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text):
    return Reader(text)


# --- text


@given(st.text() | st.text("<>&\"'/;=!-ab "))
def test_any_text_comes_back_as_that_text_from_an_element_and_its_attribute(said):
    page = Reader(render_part("picture", said, "", 1, 1))
    ((_, inside),) = page.kinds("figcaption")
    ((attributes, _),) = page.kinds("img")
    assert inside == clean(said)
    assert attributes["alt"] == clean(said)


@given(
    st.recursive(
        st.text()
        | st.text("<>&/\u2028")
        | st.floats(allow_nan=False, allow_infinity=False),
        st.lists,
    )
)
def test_json_comes_back_and_can_end_no_script(value):
    written = to_json(value)
    assert json.loads(written) == value
    assert not set(written) & set("<>&\u2028\u2029")


def test_labels_and_file_names_stay_text(text, page):
    scripts = page.kinds("script")
    assert len(scripts) == 2 + len(SCRIPTS)
    assert HOSTILE not in text
    assert "<b>bold" not in text
    assert any(HOSTILE in inside for _, inside in page.kinds("li"))
    assert any(inside == QUOTED for _, inside in page.kinds("th"))
    assert HOSTILE in json.loads(scripts[0][1])["corpora"][0]["classes"]


def test_a_file_name_that_is_not_utf_8_does_not_prevent_the_page(tmp_path, study):
    results = replace(
        study["all_results"][0], rejects=[Reject("odd\udcff\x00.wav", 1, "no audio")]
    )
    path = write_study(tmp_path / "report.html", {**study, "all_results": [results]})
    assert "odd\ufffd\ufffd.wav" in path.read_text(encoding="utf-8")


# --- data


def data_of(results, **frames):
    """Return what the charts show of results with other frames."""
    named = with_names(replace_frames(results, **frames))
    return corpus_data(named, write_summary(named), ())


def test_points_are_those_of_the_curves_rounded_once(study):
    for results in map(with_names, study["all_results"]):
        corpus = data_of(results)
        curve = results.evaluation.curve
        metrics = curve.select("scoring", "metric").unique(maintain_order=True).rows()
        for point in curve.iter_rows(named=True):
            metric = metrics.index((point["scoring"], point["metric"]))
            spread = corpus["spreads"].index(point["spread"])
            encoder = corpus["encoders"].index(point["encoder"])
            line = corpus["lines"][f"{metric}.{spread}.{encoder}"]
            values = [row[corpus["shots"].index(point["k"])] for row in line]
            expected = [point[field] for field in ("mean", "p01", "p99")]
            assert values == [float(f"{value:.{DIGITS}f}") for value in expected]


def test_a_value_that_is_not_a_number_is_null(study):
    results = study["all_results"][1]
    curve = results.evaluation.curve.with_columns(p99=nan, p01=-0.00001)
    line = data_of(results, curve=curve)["lines"]["0.0.0"]
    assert set(line[2]) == {None}
    assert "-0.0" not in to_json(line)
    assert "null" in to_json(line)


def test_a_line_without_a_point_at_some_k_is_null_there(study):
    results = study["all_results"][1]
    curve = results.evaluation.curve
    is_missing = (pl.col("encoder") == "mfcc") & (pl.col("k") == 2)
    corpus = data_of(results, curve=curve.filter(~is_missing))
    index = corpus["shots"].index(2)
    for encoder, name in enumerate(corpus["encoders"]):
        mean = corpus["lines"][f"0.0.{encoder}"][0]
        assert [value is None for value in mean] == [
            name == "MFCC" and k == index for k in range(len(mean))
        ]


def test_the_chance_of_a_class_counts_all_queries_that_it_overlaps_fold_by_fold():
    labels = {  # fold: what overlaps each of its segments, the label at the centre first
        0: [("roar", "bark"), ("roar",), ("bark",), ("bark", "roar"), ("out", "roar")],
        1: [("bark",), ("roar",), ("roar",), ("roar",)],
        -1: [("roar", "bark")] * 3,
    }
    rows = [row for part in labels.values() for row in part]
    fold = np.array([number for number, part in labels.items() for _ in part])
    table = Vectors.from_columns(
        "e",
        np.zeros((12, 1)),
        [*map(str, range(12))],
        ["r"] * 12,
        [row[0] for row in rows],
        rows,
    )
    counts = [ClassCount(name, 6, 3, name != "out") for name in ("roar", "bark", "out")]
    found = Evaluation("c", 3, 8, counts, Folds(fold, 2, "given"), table.spans)

    def chance(positives, queries):
        """Return the mean AP over all orders of the queries, one after the other."""
        truths = list(
            permutations([True] * positives + [False] * (queries - positives))
        )
        return np.mean(
            [
                np.mean([sum(t[: i + 1]) / (i + 1) for i in range(queries) if t[i]])
                for t in truths
            ]
        )

    wanted = {
        "roar": (chance(3, 4) + chance(3, 4)) / 2,
        "bark": (chance(3, 4) + chance(1, 4)) / 2,
    }
    assert class_chances(found) == pytest.approx(wanted, abs=1e-12)
    alone = replace(
        found, segments=table.with_columns(labels=[()] * 12).spans
    )  # the label at the centre is its own
    wanted = {
        "roar": (chance(2, 4) + chance(3, 4)) / 2,
        "bark": (chance(2, 4) + chance(1, 4)) / 2,
    }
    assert class_chances(alone) == pytest.approx(wanted, abs=1e-12)


# --- structure


def test_ids_are_unique_and_every_reference_has_its_target(page):
    every = [attributes for _, attributes, _ in page.found]
    ids = [a["id"] for a in every if "id" in a]
    assert len(ids) == len(set(ids))
    wanted = {a["aria-labelledby"] for a in every if "aria-labelledby" in a}
    assert wanted | {
        a["href"][1:] for a in every if a.get("href", "").startswith("#")
    } <= set(ids)


def test_nothing_is_fetched_and_only_our_own_scripts_may_run(text, page):
    policy = next(
        a["content"]
        for a, _ in page.kinds("meta")
        if a.get("http-equiv") == "Content-Security-Policy"
    )
    shape = re.sub("( 'sha256-[^']+')+", " HASHES", policy)
    assert shape == (
        "default-src 'none'; script-src HASHES; style-src HASHES; img-src data:; "
        "media-src data:; base-uri 'none'; form-action 'none'"
    )
    run = [
        inside
        for attributes, inside in page.kinds("script")
        if "type" not in attributes
    ]
    for inside in [*run, *(style for _, style in page.kinds("style"))]:
        assert (
            base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
            in policy
        )
    sources = [
        a.get("src") or a.get("href")
        for _, a, _ in page.found
        if "src" in a or "href" in a
    ]
    assert all(s.startswith(("#", "data:")) for s in sources)
    assert not any(
        "style" in a or any(key.startswith("on") for key in a) for _, a, _ in page.found
    )


def test_without_scripts_every_panel_says_what_is_missing_and_tables_are_there(page):
    panels = [a for a, _ in page.kinds("div") if a.get("class") == "panel"]
    assert len(page.kinds("noscript")) == len(panels) + 1
    tables = [a.get("data-testid") for a, _ in page.kinds("table")]
    assert tables.count("table-results") == 2


def test_equal_studies_give_equal_bytes(tmp_path, study, text):
    again = write_study(tmp_path / "again.html", study)
    assert again.read_bytes() == text.encode()
    assert [path.name for path in tmp_path.iterdir()] == ["again.html"]


def test_the_matrix_has_the_ap_of_every_encoder_and_call_type(study):
    results = study["all_results"][0]
    evaluation = results.evaluation
    cells = [inside for _, inside in Reader(show_matrix(results, 5)).kinds("td")]
    expected = []
    for count in evaluation.eligible_classes:
        for encoder in evaluation.encoders:
            (point,) = evaluation.per_class.filter(
                label=count.label, encoder=encoder, metric="map", spread="total", k=5
            )["mean"]
            expected.append(f"{point:.2f}")
    assert cells == expected


def test_chance_beside_the_first_curve_is_that_of_the_sentence():
    results = make_corpus_results()
    by_k = pl.col("chance") + 0.013 * pl.col("k")
    is_map = pl.col("metric") == "map"
    chance = pl.when(is_map).then(by_k).otherwise("chance")
    curve = results.evaluation.curve.with_columns(chance.alias("chance"))
    results = replace_frames(results, curve=curve)
    summary = write_summary(results)
    data = corpus_data(results, summary, ())
    text = " ".join(summary.headline.details)
    (sentence,) = re.findall(r"A random ranking gives (0\.\d+)\.", text)
    assert data["headline"]["chance"]["name"] == f"chance {sentence}"


def test_examples_that_a_call_type_needs_are_read_from_its_curve(study):
    results = study["all_results"][0]
    table = examples_needed_table(results, "mfcc", 5)
    points = results.evaluation.per_class.filter(
        encoder="mfcc", metric="map", spread="total", scoring="all"
    )
    for row, count in zip(table.rows, results.evaluation.eligible_classes, strict=True):
        assert row[0].text == count.label
        for level, cell in zip((0.5, 0.6, 0.7, 0.8, 0.9), row[3:], strict=True):
            reached = [
                point["k"]
                for point in points.filter(label=count.label).sort("k").to_dicts()
                if point["mean"] >= level and point["k"] <= count.complete_to_k
            ]
            assert cell.value == (reached[0] if reached else None)


# --- tables


GRID = Table(
    "results",
    "Results",
    [Column("k"), Column("mAP", "one"), Column("AUROC", "one"), Column("mAP", "two")],
    [
        [Cell("1", 1), Cell("0.5", 0.5, 1), Cell("–"), Cell("0.7", 0.7)],
        [
            Cell("5", 5, mark="⋆"),
            Cell("0.6", 0.6, 2),
            Cell("0.75", 0.75),
            Cell("0.8", 0.8),
        ],
        [Cell("LR"), Cell("0.55", 0.55), Cell("–"), Cell("0.9", 0.9)],
    ],
    1,
    [("⋆", "k* is 4")],
)


def test_underlines_marks_notes_and_the_foot_are_those_of_the_table():
    shown = to_html(GRID, "t")
    page = Reader(shown)
    assert [(a["class"], inside) for a, inside in page.kinds("u")] == [
        ("u1", "0.5"),
        ("u2", "0.6"),
    ]
    assert "⋆ k* is 4" in page.kinds("ul")[0][1]
    assert page.kinds("tfoot")[0][1] == "LR0.55–0.9"
    values = [a.get("data-value") for a, _ in page.kinds("td")]
    assert values[:3] == ["0.5", None, "0.7"]
    assert "nan" not in shown


# --- the other sections


def test_the_class_that_gains_most_comes_first_and_unknown_gains_last():
    rows = [
        class_budget("roar", 0.01),
        class_budget("growl", nan, judged=False),
        class_budget("rumble", 0.03, recommended=True),
        class_budget("bark", -0.01),
    ]
    page = Reader(show_budget(make_rows(BUDGET, *rows)))
    ((_, summary),) = page.kinds("summary")
    assert summary.startswith("With mfcc, “rumble” gains most from its next example")
    labels = [inside for a, inside in page.kinds("span") if a["class"] == "label"]
    assert labels == ["rumble", "roar", "bark", "growl"]
    widths = [a["width"] for a, _ in page.kinds("rect")]
    assert widths == ["100.0%", "33.3%", "0.0%", "0.0%"]
    for few, said in ((rows[:2], "no call type stands out"), (rows[1:2], "not known")):
        assert said in show_budget(make_rows(BUDGET, *few))


def test_the_first_200_rejects_are_shown_and_all_are_counted(page):
    details = [
        inside
        for attributes, inside in page.kinds("details")
        if "rows and files left out" in inside and "id" not in attributes
    ]
    assert len(details) == 2
    assert details[0].startswith("250 rows and files left out")
    assert details[0].count("too short") == 200


def test_a_picture_is_in_the_page_with_its_size(study, page):
    ((image, _),) = page.kinds("img")
    data = study["pictures"]["reserve"][0][2].read_bytes()
    assert base64.b64decode(image["src"].removeprefix("data:image/png;base64,")) == data
    facts = [image[name] for name in ("width", "height", "loading")]
    assert facts == ["1200", "400", "lazy"]


def test_a_picture_that_is_not_a_png_is_an_error(tmp_path):
    (tmp_path / "sweep.png").write_bytes(b"GIF89a")
    with pytest.raises(InputError, match=r"sweep\.png: expected a PNG file"):
        show_picture("sweep", tmp_path / "sweep.png")


# --- what others wrote


def test_third_party_files_have_their_listed_checksums(text):
    noted = re.findall(
        r"^\| `([^`]+)` .*`([0-9a-f]{64})` \|$",
        (ASSETS / "THIRD-PARTY.md").read_text(),
        re.MULTILINE,
    )
    names = "uPlot.iife.min.js uPlot.min.css uPlot.LICENSE.txt"
    assert [name for name, _ in noted] == names.split()
    for name, texts in noted:
        assert hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() == texts
    assert "Permission is hereby granted" in text
