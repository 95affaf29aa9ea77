"""The voice: one short function per command. Nothing heavy is imported before a command needs it.

app        the program, its errors, and what all commands share
corpus     inspect, segment, synth
encoders   embed, encoders
evaluate   evaluate
imports    import
options    what commands on recordings share
rivals     rivals
study      init, run, status
"""

from callshot.cli import study  # isort: skip  (the order here is the order of --help)
from callshot.cli import corpus, encoders, evaluate  # isort: skip
from callshot.cli import baselines, imports
from callshot.cli.app import app, main

__all__ = ["app", "corpus", "encoders", "evaluate", "imports", "main", "rivals", "study"]
