"""Batch files: what they start, run here with a stand-in for pbsdsh."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import callshot
from callshot.cli import app
from callshot.distributed.batch_files import make_batch_file
from callshot.errors import OptionError
from sounds import record

pytest.importorskip("distributed")

# The stand-in runs a program twice, as two nodes would.
PBSDSH = """#!/bin/bash
[ "$1" = -- ] || exit 9
shift
env -i "$@" & env -i "$@" & trap 'kill $(jobs -p)' TERM; wait
"""

# Tries first what another user could do: the address is known, the certificate is not.
CALLSHOT = """#!/bin/bash
ls -ld .callshot-cluster-* .callshot-cluster-*/key.pem | cut -c1-10 >modes
env -u DASK_CONFIG PROGRAM "$@" >stranger 2>&1
[ $? = 2 ] || exit 9
exec PROGRAM "$@"
"""


def test_a_batch_file_starts_a_scheduler_workers_and_the_command(tmp_path):
    audio = tmp_path / "my recordings"
    audio.mkdir()
    for number in range(3):
        record(audio / f"r{number}.wav", 2.0, 16000, seed=number)
    words = ["index", "my recordings", "-e", "mfcc", "--window", "1", "-o", "index"]
    options = ["--workers", "2", "-o", str(tmp_path / "job.sh"), "--", *words]
    result = CliRunner().invoke(app, ["batch", "pbs", *options])
    assert result.exit_code == 0, result.output
    programs = tmp_path / "bin"
    programs.mkdir()
    own = Path(sys.executable).parent
    callshot_program = CALLSHOT.replace("PROGRAM", str(own / "callshot"))
    for program, content in [("pbsdsh", PBSDSH), ("callshot", callshot_program)]:
        (programs / program).write_text(content)
        (programs / program).chmod(0o755)
    path = os.pathsep.join([str(programs), str(own), os.environ["PATH"]])
    process = subprocess.run(
        ["bash", "job.sh"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert "3 recordings added" in process.stdout
    assert len(callshot.open_index(tmp_path / "index").recordings) == 3
    assert not list(tmp_path.glob(".callshot-cluster-*"))
    assert (tmp_path / "modes").read_text().split() == ["drwx------", "-rw-------"]
    assert "no scheduler answers" in (tmp_path / "stranger").read_text()


def test_a_gpu_is_asked_for_and_announced():
    words = ["index", "in", "-e", "hubert", "-o", "out", "--device", "cuda"]
    slurm = make_batch_file("slurm", words, workers=2, gpu=True)
    assert "\n#SBATCH --gpus-per-task=1\n" in slurm
    assert "--resources GPU=1" in slurm
    pbs = make_batch_file("pbs", words, workers=2, threads=4, memory=2, gpu=True)
    assert "select=2:ncpus=4:mem=8gb:ngpus=1\n" in pbs
    plain = make_batch_file("slurm", words, workers=2)
    assert "\n#SBATCH --gpus" not in plain
    assert "\nsrun --ntasks=2 " in plain
    assert "@" not in plain.replace("$@", "")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            [],
            "command: expected one of index, embed, scan, evaluate, run first, got 'nothing'",
        ),
        (["review", "x"], "got 'review'"),
        (["index", "--cluster", "local:2"], "the batch file adds this option"),
        (["index", "a\nrm -r b"], "without line breaks"),
    ],
)
def test_a_command_that_has_no_cluster_is_refused(words, message):
    with pytest.raises(OptionError, match=message):
        make_batch_file("slurm", words, workers=2)
