"""Rivals of tables: files in a directory, on the folds and draws of an evaluation."""

import enum
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from callshot.baselines.run import BaselineOptions, named_cell, outputs, score_aerd_package
from callshot.cli import app
from callshot.corpus.known_corpora import CORPORA
from callshot.errors import InputError, OptionError, OutputError
from callshot.fewshot.protocol import Protocol
from callshot.records import Embeddings
from callshot.study.file_steps import evaluate_files
from callshot.study.train_baselines import (
    Sources,
    protocol_of_results,
    read_baseline_results,
    train_baseline_files,
)
from callshot.tables.dataset import read_dataset
from callshot.tables.embedding_tables import read_table, write_table

PROTOCOL = Protocol(shots=(1, 2, 4), draws=5, bootstraps=20, shared_draws=20, seed=5)
LOGISTIC = BaselineOptions(("logistic",), shots=True, draws=6)


def make_table(path: Path, encoder: str = "mine", seed: int = 0) -> Path:
    """Write embeddings of three call types in 20 recordings, the first two alike, some with two labels."""
    rng = np.random.default_rng(seed)
    label = [("rumble", "growl", "trumpet")[n % 3] for n in range(60)]
    means = {"rumble": 0.0, "growl": 1.0, "trumpet": 4.0}
    vectors = np.array([[means[name], 0, 0, 0] for name in label]) + rng.normal(size=(60, 4))
    labels = [(name, "trumpet") if n % 10 == 0 else (name,) for n, name in enumerate(label)]
    segment, recording = [f"s{n:02}" for n in range(60)], [f"r{n // 3:02}" for n in range(60)]
    write_table(
        Embeddings(encoder, vectors.astype(np.float32), segment, recording, label, labels), path
    )
    return path


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Tables of two encoders."""
    folder = tmp_path_factory.mktemp("herd")
    return [make_table(folder / "one.parquet", "one"), make_table(folder / "two.parquet", "two", 1)]


@pytest.fixture(scope="module")
def results(tables: list[Path]) -> Path:
    """What the centroid did on them."""
    out = tables[0].parent / "results"
    evaluate_files(tables, out, PROTOCOL, figure=False)
    return out


def test_what_is_written_reads_back(tables: list[Path], tmp_path: Path) -> None:
    found = train_baseline_files(tables, tmp_path, LOGISTIC, PROTOCOL)
    again = read_baseline_results(tmp_path)
    assert again.baselines == found.baselines
    assert again.refinement == found.refinement
    assert again.swept is not None
    assert found.swept is not None
    assert again.swept.curve == found.swept.curve
    assert set(found.files) == {path.name for path in tmp_path.iterdir()}
    assert {(r.encoder, r.metric) for r in found.baselines} == {
        (e, m) for e in ("one", "two") for m in ("map", "auroc")
    }


def test_without_shots_nothing_is_swept(tables: list[Path], tmp_path: Path) -> None:
    found = train_baseline_files(tables, tmp_path, BaselineOptions(("logistic",)), PROTOCOL)
    assert found.swept is None
    assert {path.name for path in tmp_path.iterdir()} == {
        "rivals.csv",
        "refinement.csv",
        "provenance.json",
    }
    assert read_baseline_results(tmp_path).swept is None


def test_shots_alone_train_nothing_on_all_labels(tables: list[Path], tmp_path: Path) -> None:
    found = train_baseline_files(tables, tmp_path, BaselineOptions(shots=True, draws=2), PROTOCOL)
    assert found.baselines == []
    assert read_baseline_results(tmp_path).swept is not None


def test_same_input_same_bytes_whatever_the_threads(tables: list[Path], tmp_path: Path) -> None:
    for threads in (1, 2):
        train_baseline_files(tables, tmp_path / str(threads), LOGISTIC, PROTOCOL, threads=threads)
    for path in sorted((tmp_path / "1").iterdir()):
        if path.suffix != ".parquet":
            assert path.read_bytes() == (tmp_path / "2" / path.name).read_bytes(), path.name


def test_against_results_the_folds_and_draws_are_theirs(
    tables: list[Path], results: Path, tmp_path: Path
) -> None:
    protocol = protocol_of_results(results, {})
    assert protocol == PROTOCOL
    found = train_baseline_files(tables, tmp_path, LOGISTIC, protocol, against=results)
    assert (tmp_path / "folds.csv").read_bytes() == (results / "folds.csv").read_bytes()
    assert {(c.labels, c.spread) for c in found.crossovers} == {
        ("all", "per-query"),
        ("all", "shared"),
        ("k", "shared"),
    }
    told = pl.read_csv(tmp_path / "crossings.csv")
    assert len(told) == len(found.crossovers)


def test_what_is_not_the_results_of_an_evaluation_is_refused(
    tables: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="callshot evaluate wrote"):
        protocol_of_results(tmp_path, {})
    (tmp_path / "provenance.json").write_text("[]")
    with pytest.raises(InputError, match="not the provenance of an evaluation"):
        protocol_of_results(tmp_path, {})


@pytest.mark.parametrize(
    ("changes", "more", "match"),
    [
        ({"seed": 7}, {}, "seed: 7 are other draws than those of"),
        ({"sampler": "replacement"}, {}, "sampler: replacement are other draws"),
        ({}, {"folds": 3}, "folds: those of .* are taken"),
        ({}, {"corpus": "zebras"}, "corpus: .* calls it 'herd"),
        ({}, {"fold_file": "folds.csv"}, "folds: those of .* are taken"),
        ({}, {"categories": "groups.csv"}, "groups.csv: not a file that .* was made from"),
    ],
)
def test_another_contest_is_refused(
    tables: list[Path],
    results: Path,
    tmp_path: Path,
    changes: dict[str, Any],
    more: dict[str, Any],
    match: str,
) -> None:
    (tmp_path / "groups.csv").write_text("label,category\nrumble,low\ngrowl,low\ntrumpet,high\n")
    options = {
        name: tmp_path / x if name in ("fold_file", "categories") else x for name, x in more.items()
    }
    with pytest.raises((InputError, OptionError), match=match):
        train_baseline_files(
            tables,
            tmp_path / "out",
            LOGISTIC,
            protocol_of_results(results, changes),
            against=results,
            **options,
        )


def test_another_table_than_was_evaluated_is_refused(
    tables: list[Path], results: Path, tmp_path: Path
) -> None:
    other = make_table(tmp_path / "one.parquet", "one", seed=9)
    with pytest.raises(InputError, match=r"one.parquet: not a file that .* was made from"):
        train_baseline_files(
            [other], tmp_path / "out", LOGISTIC, protocol_of_results(results, {}), against=results
        )


def test_results_without_the_centroid_are_refused(tables: list[Path], tmp_path: Path) -> None:
    evaluate_files(tables, tmp_path / "r", replace(PROTOCOL, classifiers=("cosine",)), figure=False)
    with pytest.raises(InputError, match="has no curve of the centroid"):
        train_baseline_files(
            tables,
            tmp_path / "o",
            LOGISTIC,
            protocol_of_results(tmp_path / "r", {}),
            against=tmp_path / "r",
        )


def test_the_centroid_alone_is_held_against_rivals(tables: list[Path], tmp_path: Path) -> None:
    evaluate_files(
        tables[:1],
        tmp_path / "r",
        replace(PROTOCOL, classifiers=("cosine", "centroid")),
        figure=False,
    )
    found = train_baseline_files(
        tables[:1],
        tmp_path / "o",
        LOGISTIC,
        protocol_of_results(tmp_path / "r", {}),
        against=tmp_path / "r",
    )
    keys = [(c.baseline, c.labels, c.scoring, c.metric, c.spread) for c in found.crossovers]
    assert len(keys) == len(set(keys))


def test_rivals_do_not_take_the_place_of_an_evaluation(tables: list[Path], tmp_path: Path) -> None:
    evaluate_files(tables, tmp_path / "r", PROTOCOL, figure=False)
    before = sorted(path.name for path in (tmp_path / "r").iterdir())
    with pytest.raises(OutputError, match="it has the results of another command"):
        train_baseline_files(tables, tmp_path / "r", LOGISTIC, PROTOCOL, against=tmp_path / "r")
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == before


def test_the_strength_that_is_given_is_used_everywhere(tables: list[Path], tmp_path: Path) -> None:
    one, other = (
        train_baseline_files(tables[:1], tmp_path / str(c), replace(LOGISTIC, strength=c), PROTOCOL)
        for c in (1e-3, 10.0)
    )
    assert one.baselines[0].how == "C: 0.001"
    assert other.baselines[0].how == "C: 10"
    assert one.swept is not None
    assert other.swept is not None
    assert [v.value.tolist() for v in one.swept.values] != [
        v.value.tolist() for v in other.swept.values
    ]
    for found in (one, other):
        way = [r.value for r in found.refinement if r.metric == "auroc"]
        (end,) = [r.value for r in found.baselines if r.metric == "auroc"]
        assert way[-1] == pytest.approx(end, abs=2e-3)
    assert one.refinement[-1] != other.refinement[-1]


def test_the_papers_pairing_goes_by_what_a_corpus_is_known_as(tmp_path: Path) -> None:
    path = make_table(tmp_path / "mfcc.parquet", "mfcc")
    table = read_table(path)
    write_table(table, path, corpus="elephant-voices")
    plot = next(read_dataset([path], corpus="ev", known=CORPORA).per_encoder())
    assert (plot.dataset.corpus, plot.dataset.known_corpus) == ("ev", "elephant-voices")
    assert [named_cell(plot, cell) for cell in ("paper", "chosen", "lstm")] == ["gru", "", "lstm"]
    assert (
        named_cell(next(read_dataset([make_table(tmp_path / "x.parquet")]).per_encoder()), "paper")
        == ""
    )


def test_nothing_to_train_is_told(tables: list[Path], tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="nothing to train"):
        train_baseline_files(tables, tmp_path, BaselineOptions(), PROTOCOL)


def test_sequences_that_are_missing_are_told_before_training(
    tables: list[Path], tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'callshot[baselines]'")
    with pytest.raises(InputError, match="embed the segments again with --sequence"):
        train_baseline_files(tables[:1], tmp_path, BaselineOptions(("recurrent",)), PROTOCOL)


def test_with_categories_the_audio_is_told_apart_by_them(
    tables: list[Path], tmp_path: Path
) -> None:
    (path := tmp_path / "groups.csv").write_text(
        "label,category\nrumble,low\ngrowl,low\ntrumpet,high\n"
    )
    plot = next(read_dataset(tables[:1], categories=path).per_encoder())
    scoring, names, targets = outputs(plot)
    assert (scoring, names) == ("reduced", ("high", "low"))
    own = plot.episodes.relevant
    trumpet = plot.episodes.classes.index("trumpet")
    np.testing.assert_array_equal(targets[:, 0], own[:, trumpet])
    np.testing.assert_array_equal(targets[:, 1], np.delete(own, trumpet, axis=1).any(axis=1))
    assert targets.sum(axis=1).max() == 2


def test_a_plot_knows_the_segment_and_recording_of_each_row(tables: list[Path]) -> None:
    plot = next(read_dataset(tables[:1]).per_encoder())
    for row, name in enumerate(plot.segments):
        at = plot.table.segment.index(name)
        assert plot.table.label[at] == plot.episodes.classes[plot.episodes.label[row]]
        assert plot.groups[row] == int(plot.table.recording[at][1:])


def test_the_command_tells_what_was_scored_and_where_curves_cross(
    tables: list[Path], results: Path, tmp_path: Path
) -> None:
    arguments = [
        "rivals",
        *map(str, tables),
        "--against",
        str(results),
        "--out",
        str(tmp_path / "r"),
        "--rival-shots",
    ]
    done = CliRunner().invoke(app, [*arguments, "--draws", "4"])
    assert done.exit_code == 0, done.output
    assert "LR" in done.output
    assert "logistic at the same k passes the class mean" in done.output
    assert f"results in {tmp_path / 'r'}" in done.output
    assert set(pl.read_csv(tmp_path / "r" / "curve.csv")["k"]) == {1, 2, 4}


def test_end_to_end_without_segments_says_what_is_missing(
    tables: list[Path], tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install 'callshot[baselines]'")
    with pytest.raises(OptionError, match="name the table of segments"):
        train_baseline_files(
            tables[:1], tmp_path, BaselineOptions(("end-to-end",)), PROTOCOL, sources=Sources()
        )


def test_aerd_as_published_is_asked_by_the_letters_of_its_labels(
    tables: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that hears a louder trumpet in a louder signal, and nothing else."""
    torch = pytest.importorskip(
        "torch", reason="torch is not installed: pip install 'callshot[baselines]'"
    )
    plot = next(read_dataset(tables[:1], folds=2).per_encoder())
    loud = {True: 0.5, False: 0.05}
    trumpet = plot.episodes.relevant[:, plot.episodes.classes.index("trumpet")]
    signals = [np.full(16_000, loud[bool(one)], np.float32) for one in trumpet]

    class Weights(enum.Enum):
        EV_CALL = "ev"
        num_classes = property(lambda self: 4)
        num_folds = property(lambda self: 2)
        class_labels = property(
            lambda self: {0: "not-call", 1: "Rumble", 2: "growl", 3: "trum-pet"}
        )

    def predict(waveform: Any, output: str = "tensor") -> Any:
        level = waveform.mean().repeat(6)
        return torch.stack([0 * level, 0.5 + 0 * level, 0.5 + 0 * level, level], dim=-1)[None]

    module: Any = ModuleType("aerd")
    module.AERD_Weights = Weights
    module.aerd = lambda weights, fold: (SimpleNamespace(predict=predict), None)
    monkeypatch.setitem(sys.modules, "aerd", module)
    found = {r.metric: r for r in score_aerd_package(plot, "EV_CALL", signals)}
    assert (found["map"].name, found["map"].encoder, found["map"].kind) == (
        "AERD",
        "",
        "end-to-end",
    )
    positives = [plot.episodes.relevant[plot.episodes.fold == f] for f in (0, 1)]
    ties = np.mean(
        [p.mean(axis=0)[:2].sum() for p in positives]
    )  # an AP of two that know nothing: their share
    assert found["map"].value == pytest.approx((ties + 1.0) / 3)
    assert found["auroc"].value == pytest.approx((0.5 + 0.5 + 1.0) / 3)
    Weights.class_labels = property(
        lambda self: {0: "not-call", 1: "roar", 2: "growl", 3: "trumpet"}
    )
    with pytest.raises(InputError, match="AERD EV_CALL: knows no 'rumble'"):
        score_aerd_package(plot, "EV_CALL", signals)
