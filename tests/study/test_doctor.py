"""callshot doctor: what is checked on a machine, and what it says to do."""

import tomllib
from pathlib import Path

import pytest

from callshot.study import doctor
from callshot.study.doctor import (
    EXTRAS,
    GOOD,
    NOTE,
    PROBLEM,
    REQUIRED,
    check_folder,
    check_installation,
    read_cpu_limit,
)

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
FOR_DEVELOPERS = {"all", "test", "check", "bench", "docs", "dev"}


def find_check(subject):
    return next(one for one in check_installation() if one.subject == subject)


def test_the_packages_and_extras_are_those_of_the_project():
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    needed = [line.partition(">=")[0] for line in project["dependencies"]]
    assert sorted(needed) == sorted(REQUIRED)
    extras = set(project["optional-dependencies"]) - FOR_DEVELOPERS
    assert extras == set(EXTRAS)


def test_every_part_is_checked_once_and_what_is_not_good_comes_with_advice():
    checks = list(check_installation())
    subjects = [one.subject for one in checks]
    assert len(set(subjects)) == len(subjects)
    assert {"packages", "audio files", "encoder mfcc", "GPU", "threads"} <= set(
        subjects
    )
    for one in checks:
        assert bool(one.advice) == (one.state != GOOD), one


def test_a_missing_package_is_a_problem(monkeypatch):
    monkeypatch.setattr(doctor, "REQUIRED", (*REQUIRED, "no-such-package"))
    check = find_check("packages")
    assert check.state == PROBLEM
    assert "no-such-package" in check.result


def test_an_encoder_without_weights_comes_with_the_command_that_gets_them(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path))
    check = find_check("encoder birdnet-v2.4")
    assert check.state == NOTE
    assert "callshot encoders get birdnet-v2.4" in check.advice


def test_a_folder_that_cannot_be_written_or_is_full_is_reported(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    below_a_file = check_folder("store", file / "store", "use --store")
    assert (below_a_file.state, below_a_file.advice) == (PROBLEM, "use --store")
    monkeypatch.setattr(doctor, "MIN_FREE_GB", 1e9)
    full = check_folder("store", tmp_path, "use --store")
    assert (full.state, full.advice) == (NOTE, "make space, or use --store")
    assert "GB free" in full.result
    check_folder("store", tmp_path / "new", "use --store")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000", None), ("150000 100000", 1.5), ("x", None)]
)
def test_the_limit_of_a_container_is_read(tmp_path, text, cores):
    path = tmp_path / "cpu.max"
    path.write_text(text)
    assert read_cpu_limit(path) == cores
    assert read_cpu_limit(tmp_path / "absent") is None
