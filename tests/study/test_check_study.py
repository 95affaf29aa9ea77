"""The check of a study: what would stop a run is an error before any audio is read."""

import pytest

from callshot.errors import InputError, OptionError, OutputError
from callshot.study.run import run_study
from callshot.study.study_file import read_study
from studies import make_corpus, run_steps, write_study


def make_study(folder, corpus_keys="", recordings=6):
    make_corpus(folder / "recordings", recordings=recordings)
    return write_study(folder / "study.toml", corpus_keys=corpus_keys)


MISTAKES = [
    (
        "folds = 3",
        "folds = 3\ncategories = 'bad.csv'",
        r"\[corpus.here\]: .*bad.csv: col",
    ),
    (
        "folds = 3",
        "folds = 3\nfold_file = 'bad.csv'",
        r"\[corpus.here\]: .*bad.csv: col",
    ),
    (
        "folds = 3",
        "folds = 3\nrate_hz = 8000",
        r"\[corpus.here\]: .*mfcc needs segments at 16000 Hz.* with rate_hz = 16000",
    ),
    ("[report]", "[baselines]\nreferences = 'bad.csv'\n[report]", "bad.csv: column"),
    ('out = "results"', 'out = "bad.csv"', "bad.csv is not a folder"),
    ('store = "store"', 'store = "bad.csv"', "bad.csv: cannot store embeddings there"),
    (
        "folds = 3",
        "folds = 3\nmin_length_s = 9.0",
        r"\[corpus.here\]: .*: no annotation became a segment; 18 of 18 rejects .* 9 s",
    ),
    ("folds = 3", "folds = 3\nchannel = 2", "no annotation became .*18 rejects .*chan"),
    (
        "folds = 3",
        "folds = 7",
        r"\[corpus.here\]: 6 recordings with calls: too few .*= 6",
    ),
]


def test_mistakes_stop_the_run_before_the_first_step(tmp_path):
    study = make_study(tmp_path)
    text = study.read_text(encoding="utf-8")
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    for old, new, match in MISTAKES:
        assert old in text
        study.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises((InputError, OptionError, OutputError), match=match):
            run_steps(study)
        assert not list(tmp_path.rglob("segments.parquet"))
    for out in ("", "/", ".callshot/results"):
        changed = text.replace('out = "results"', f'out = "{out}"')
        study.write_text(changed, encoding="utf-8")
        with pytest.raises(OptionError, match=r"study.toml: out: .*folder"):
            read_study(study)
    study.write_text(text, encoding="utf-8")
    message = "device: expected one of auto, cpu, cuda, got 'gpu'"
    with pytest.raises(OptionError, match=message):
        run_study(read_study(study), device="gpu")


def test_a_file_of_others_among_the_results_is_an_error_before_the_first_step(tmp_path):
    study = make_study(tmp_path)
    for name in ("report.html", "tables/tables.tex", "here/curve.csv"):
        foreign = tmp_path / "results" / name
        foreign.parent.mkdir(parents=True, exist_ok=True)
        foreign.write_text("mine")
        facts = tmp_path / "results" / "scan.json"  # of callshot scan
        facts.write_text('{"files": {}}')
        message = f"{name} exists and was not written by callshot"
        with pytest.raises(OutputError, match=message):
            run_steps(study)
        assert foreign.read_text() == "mine"
        assert not (tmp_path / ".callshot" / "study" / "segment").exists()
        foreign.unlink()
