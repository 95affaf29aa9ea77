import base64
import json
import re
import struct
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import soundfile

from callshot.records import no_progress
from callshot.records.frames import BASELINES, CROSSOVERS, REFINEMENT
from callshot.report.figures import FIGURES, figure_io
from callshot.report.figures.figure_io import ON_CHART
from callshot.report.summary import write_summary
from callshot.report.write_report import ReportOptions, write_numbers, write_report
from callshot.results import EarlierFiles
from callshot.tables.evaluation_files import read_frame
from corpus_results import SMALL, make_corpus_results, make_tables, replace_frames
from rows_of_spans import make_row, make_spans

CLASSIFIERS = ["centroid", "cosine", "cl2n", "logistic"]
ALONE = ({}, None, EarlierFiles(), no_progress)  # no sounds, no workers


def test_the_numbers_of_all_classifiers_are_in_one_file_the_reference_first(
    trained, tmp_path
):
    write_numbers(trained, tmp_path, EarlierFiles())
    folder = tmp_path / "corpus"
    curve = pl.read_csv(folder / "curve.csv")
    assert curve["classifier"].unique(maintain_order=True).to_list() == CLASSIFIERS
    assert len(curve) == len(trained.evaluation.curve) + len(
        trained.other_classifiers.curve
    )
    values = pl.read_parquet(folder / "values.parquet")
    per_class = pl.read_csv(folder / "per_class.csv")
    for table in (pl.read_parquet(folder / "curve.parquet"), values, per_class):
        assert set(table["classifier"]) == set(CLASSIFIERS)
    trained_values = values.filter(classifier="logistic")
    assert set(trained_values["spread"]) == {"shared"}
    expected = trained.other_classifiers.values.filter(classifier="logistic")[
        "value"
    ].explode()
    assert trained_values["value"].equals(expected)


def test_baselines_crossovers_and_refinement_are_written_if_there_are_any(
    trained, tmp_path
):
    names = write_numbers(trained, tmp_path, EarlierFiles())
    folder = tmp_path / "corpus"
    assert {f"corpus/{path.name}" for path in folder.iterdir()} == set(names)
    lists = ("samples", "mean_samples")
    scalars = {name: dtype for name, dtype in BASELINES.items() if name not in lists}
    for name, schema, frame in (
        ("crossovers.csv", CROSSOVERS, trained.evaluation.crossovers),
        ("refinement.csv", REFINEMENT, trained.refinement),
        ("baselines.csv", scalars, trained.baselines.drop(lists)),
    ):
        assert len(frame)
        assert read_frame(folder / name, schema).equals(frame)


def test_without_baselines_there_are_no_files_for_them(tmp_path):
    names = write_numbers(make_corpus_results(), tmp_path, EarlierFiles())
    names = [name.removeprefix("corpus/") for name in names]
    assert not {"baselines.csv", "crossovers.csv", "refinement.csv"} & set(names)
    assert {"differences.csv", "budget.csv", "rejects.csv"} <= set(names)
    assert set(pl.read_csv(tmp_path / "corpus/curve.csv")["classifier"]) == {"centroid"}


def describe_report():
    return ReportOptions(
        title="Noise",
        shots=(1, 5),
        confusion=(1, 5),
        spread="per-query",
        protocol=SMALL,
        commands=["callshot run study.toml"],
    )


def write_empty_page(page, folder, formats):
    """Write a PNG header with the name of the page instead of the figure."""
    folder.mkdir(exist_ok=True)
    header = b"\x89PNG\r\n\x1a\n" + bytes(8) + struct.pack(">II", 9, 9)
    for suffix in formats:
        (folder / f"{page.stem}.{suffix}").write_bytes(header + page.stem.encode())


@pytest.mark.parametrize("pdf", [False, True])
def test_the_page_has_each_figure_once_that_no_chart_shows_and_a_paper_has_all(
    trained, tmp_path, monkeypatch, pdf
):
    monkeypatch.setattr(figure_io, "draw_page", write_empty_page)
    repeated = replace(SMALL, repeat_samples=2, repeat_folds=2, total_samples=100)
    crossed = make_corpus_results(protocol=repeated).evaluation
    frames = {
        "sensitivity": crossed.sensitivity,
        "sensitivity_means": crossed.sensitivity_means,
    }
    all_results = {"corpus": replace_frames(trained, **frames)}
    summaries = {name: write_summary(one) for name, one in all_results.items()}
    options = replace(describe_report(), pdf=pdf)
    write_report(tmp_path, all_results, options, summaries, {}, *ALONE)
    page = (tmp_path / "report.html").read_text()
    figures = sorted(tmp_path.glob("*/figures/*.png"))
    shown = {name for name, figure in FIGURES.items() if figure.section != ON_CHART}
    drawn = {path.stem.partition("-")[0] for path in figures}
    assert drawn == (set(FIGURES) if pdf else shown)
    for path in figures:
        image = base64.b64encode(path.read_bytes()).decode()
        is_shown = path.stem.partition("-")[0] in shown
        assert page.count(image) == is_shown, path
    assert page.count('class="picture"') == len(shown)


LARGEST_BYTES = 5_000_000
LONG_S = 3.0


def write_noise(folder, table):
    """Return a recording of noise, which compresses worst, with a long call per segment."""
    rate_hz = 16000
    rng = np.random.default_rng(0)
    signal = rng.uniform(-0.9, 0.9, int((len(table) + 1) * LONG_S * rate_hz))
    soundfile.write(folder / "noise.wav", signal, rate_hz)
    segments = []
    for number, (name, label) in enumerate(
        zip(table.segment, table.label, strict=True)
    ):
        start_s = number * LONG_S
        segments.append(
            make_row("noise.wav", start_s, start_s + LONG_S, segment=name, label=label)
        )
    return make_spans(segments, folder)


def test_a_report_with_sounds_of_6_call_types_and_2_encoders_has_at_most_5_mb(tmp_path):
    tables = make_tables([f"call type {number}" for number in range(6)], each=1)
    results = make_corpus_results(tables)
    audio = {"corpus": write_noise(tmp_path, tables[0])}
    options = describe_report()
    out = tmp_path / "out"
    summaries = {"corpus": write_summary(results)}
    names = write_report(
        out, {"corpus": results}, options, summaries, {}, audio, *ALONE[1:]
    )
    page = (out / "report.html").read_bytes()
    assert len(page) <= LARGEST_BYTES
    (clips,) = re.findall(rb'id="clips">(.*?)</script>', page)
    assert len(json.loads(clips)[0]) >= 3 * 6  # of every call type
    assert len([name for name in names if name.endswith(".png")]) >= 2
    assert not [name for name in names if name.endswith(".pdf")]
