"""Command-line interface, one function per command; heavy imports wait until a command needs them.

app         the program, its errors, progress; dataclasses of options
options     options that commands share, and of an evaluation; the option --cluster
study       init, run, status
steps       inspect, segment, embed, evaluate, baselines; encoders
models      learn, model, export, scan, review, score, convert
other       index, find, import, synth, batch slurm, batch pbs, verify, doctor
"""

from callshot.cli import study  # isort: skip  (the order here is the order of --help)
from callshot.cli import steps  # isort: skip
from callshot.cli import models  # isort: skip
from callshot.cli import other  # isort: skip
from callshot.cli.app import app, main

__all__ = ["app", "main", "models", "other", "steps", "study"]
