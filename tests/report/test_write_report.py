import base64
import json
import re
from dataclasses import replace

import numpy as np
import polars as pl
import soundfile

from callshot.records import no_progress
from callshot.records.frames import BASELINES, CROSSOVERS, REFINEMENT
from callshot.report.figures import FIGURES
from callshot.report.summary import write_summary
from callshot.report.write_report import (
    ReportOptions,
    write_numbers,
    write_report,
)
from callshot.results import EarlierFiles
from callshot.tables.evaluation_files import read_frame
from corpus_results import (
    SMALL,
    make_corpus_results,
    make_tables,
    replace_frames,
)
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
    scalars = {name: dtype for name, dtype in BASELINES.items() if name != "samples"}
    for name, schema, frame in (
        ("crossovers.csv", CROSSOVERS, trained.evaluation.crossovers),
        ("refinement.csv", REFINEMENT, trained.refinement),
        ("baselines.csv", scalars, trained.baselines.drop("samples")),
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


def test_every_figure_that_is_drawn_is_on_the_page_once(trained, tmp_path):
    repeated = replace(SMALL, seeds=2, repeat_folds=2, total_samples=100)
    crossed = make_corpus_results(protocol=repeated).evaluation
    frames = {
        "sensitivity": crossed.sensitivity,
        "sensitivity_means": crossed.sensitivity_means,
    }
    all_results = {"corpus": replace_frames(trained, **frames)}
    summaries = {name: write_summary(one) for name, one in all_results.items()}
    write_report(tmp_path, all_results, describe_report(), summaries, {}, *ALONE)
    page = (tmp_path / "report.html").read_text()
    figures = sorted(tmp_path.glob("*/figures/*.png"))
    kinds = {path.stem.partition("-")[0] for path in figures}
    assert kinds == set(FIGURES)
    for path in figures:
        image = base64.b64encode(path.read_bytes()).decode()
        assert page.count(image) == 1, path
    assert page.count('class="picture"') == len(figures)


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


def test_a_report_with_sounds_of_6_call_types_and_2_encoders_has_at_most_5_mb(
    tmp_path,
):
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
    assert len([name for name in names if name.endswith(".png")]) >= 7
    assert not [name for name in names if name.endswith(".pdf")]
