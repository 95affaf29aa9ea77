"""The check of a study: what would stop a run is an error before any audio is read."""

import shutil

import pytest

from callshot.errors import InputError, OptionError, OutputError
from callshot.study.run import run_study
from callshot.study.study_file import read_study
from studies import make_corpus, replace_text, run_steps, write_study


def make_study(folder, corpus_keys="", recordings=6):
    make_corpus(folder / "recordings", recordings=recordings)
    return write_study(folder / "study.toml", corpus_keys=corpus_keys)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (
            "folds = 3",
            "folds = 3\ncategories = 'bad.csv'",
            r"\[corpus.here\]: .*bad.csv: column",
        ),
        (
            "folds = 3",
            "folds = 3\nfold_file = 'bad.csv'",
            r"\[corpus.here\]: .*bad.csv: column",
        ),
        (
            "folds = 3",
            "folds = 3\nrate_hz = 8000",
            r"\[corpus.here\]: .*mfcc needs segments at 16000 Hz.* with rate_hz = 16000",
        ),
        (
            "[report]",
            "[baselines]\nreferences = 'bad.csv'\n[report]",
            r"bad.csv: column",
        ),
        ('out = "results"', 'out = "bad.csv"', r"bad.csv is not a folder"),
        (
            'store = "store"',
            'store = "bad.csv"',
            r"bad.csv: cannot store embeddings there",
        ),
    ],
)
def test_a_bad_file_or_path_stops_the_run_before_the_first_step(
    tmp_path, old, new, match
):
    study = make_study(tmp_path)
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    replace_text(study, old, new)
    with pytest.raises((InputError, OptionError, OutputError), match=match):
        run_steps(study)
    assert not (tmp_path / ".callshot" / "study" / "segment").exists()


@pytest.mark.parametrize(
    "name", ["report.html", "tables/tables.tex", "here/curve.csv", "here/rejects.csv"]
)
def test_a_file_of_others_among_the_results_is_an_error_before_the_first_step(
    name, tmp_path
):
    study = make_study(tmp_path)
    foreign = tmp_path / "results" / name
    foreign.parent.mkdir(parents=True)
    foreign.write_text("mine")
    (tmp_path / "results" / "scan.json").write_text('{"files": {}}')  # of callshot scan
    message = f"{name} exists and was not written by callshot"
    with pytest.raises(OutputError, match=message):
        run_steps(study)
    assert foreign.read_text() == "mine"
    assert not (tmp_path / ".callshot" / "study" / "segment").exists()


@pytest.mark.parametrize("out", ["", "/", ".callshot/results"])
def test_results_of_a_study_do_not_go_to_folders_of_others(out, tmp_path):
    study = make_study(tmp_path)
    replace_text(study, 'out = "results"', f'out = "{out}"')
    with pytest.raises(OptionError, match=r"study.toml: out: .*folder"):
        read_study(study)


def test_an_unknown_device_is_an_error(tmp_path):
    study = read_study(make_study(tmp_path))
    with pytest.raises(
        OptionError, match="device: expected one of auto, cpu, cuda, got 'gpu'"
    ):
        run_study(study, device="gpu")


def test_a_corpus_without_eligible_classes_is_an_error_before_its_audio_is_read(
    tmp_path,
):
    (tmp_path / "recordings").mkdir()
    for label in ("rumble", "roar", "bark", "trumpet"):
        folder = make_corpus(tmp_path / label, recordings=1, labels=(label,))
        for suffix in ("wav", "txt"):
            target = tmp_path / "recordings" / f"{label}.{suffix}"
            shutil.move(folder / f"r0.{suffix}", target)
    study = write_study(tmp_path / "study.toml")
    message = r"\[corpus.here\]: no eligible class: at least two .*in 1 recording, and 3 folds"
    with pytest.raises(InputError, match=message):
        run_steps(study)
    segments = (
        tmp_path / ".callshot" / "study" / "segment" / "here" / "segments.parquet"
    )
    assert not segments.exists()


def test_a_corpus_without_long_enough_calls_is_an_error(tmp_path):
    study = make_study(tmp_path, corpus_keys="min_length_s = 9.0\n")
    message = (
        r"\[corpus.here\]: .*: no annotation became a segment; 18 of 18 rejects .* 9 s"
    )
    with pytest.raises(InputError, match=message):
        run_steps(study)


def test_a_corpus_without_readable_audio_is_an_error_with_the_reason(tmp_path):
    study = make_study(tmp_path, corpus_keys="channel = 2\n")
    message = r"no annotation became a segment; 18 of 18 rejects .*channel"
    with pytest.raises(InputError, match=message):
        run_steps(study)


def test_fewer_recordings_than_folds_are_an_error(tmp_path):
    study = make_study(tmp_path, recordings=2)
    message = r"\[corpus.here\]: 2 recordings with calls: too few .*set folds = 2"
    with pytest.raises(InputError, match=message):
        run_steps(study)
