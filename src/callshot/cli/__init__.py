"""Command-line interface, one function per command; heavy imports wait until a command needs them.

app            the program, its errors, progress
option_groups  dataclasses of options
options        options that commands share
protocol_options  options of an evaluation
study          init, run, status
corpus         inspect, segment
encoders       embed, encoders
evaluate       evaluate
baselines      baselines
learn          learn, model, export
scan           scan
review         review
score          score, convert
index          index, find
imports        import
synth          synth
batch_files    cluster slurm, cluster pbs
checks         verify, doctor
"""

from callshot.cli import study  # isort: skip  (the order here is the order of --help)
from callshot.cli import corpus, encoders, evaluate, baselines  # isort: skip
from callshot.cli import learn, scan, review  # isort: skip
from callshot.cli import score, index  # isort: skip
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
