"""The voice: one short function per command. Nothing heavy is imported before a command needs it.

app        the program, its errors, and what all commands share
corpus     inspect, segment, synth
encoders   embed, encoders
evaluate   evaluate
imports    import
options    what commands on recordings share
baselines  baselines
study      init, run, status
"""

from callshot.cli import study  # isort: skip  (the order here is the order of --help)
from callshot.cli import corpus, encoders, evaluate, baselines  # isort: skip
from callshot.cli import imports
from callshot.cli.app import app, main

__all__ = ["app", "baselines", "corpus", "encoders", "evaluate", "imports", "main", "study"]
