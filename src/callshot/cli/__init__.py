"""Command-line interface, one function per command; heavy imports wait until a command needs them.

app            the program, its errors, progress
option_groups  dataclasses of options
options        options that commands share
study          init, run, status
corpus         inspect, segment
encoders       embed, encoders
index          index, find
evaluate       evaluate
baselines      baselines
learn          learn, model, export
scan           scan
review         review
score          score, convert
imports        import
synth          synth
batch_files    cluster slurm, cluster pbs
checks         verify, doctor
"""

from callshot.cli import study  # isort: skip  (the order here is the order of --help)
from callshot.cli import corpus, encoders, index, evaluate, baselines  # isort: skip
from callshot.cli import learn, scan, review  # isort: skip
from callshot.cli import score  # isort: skip
from callshot.cli import imports, synth, batch_files, checks  # isort: skip
from callshot.cli.app import app, main

__all__ = [
    "app",
    "baselines",
    "batch_files",
    "checks",
    "corpus",
    "encoders",
    "evaluate",
    "imports",
    "index",
    "learn",
    "main",
    "review",
    "scan",
    "score",
    "study",
    "synth",
]
