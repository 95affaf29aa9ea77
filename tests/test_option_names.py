"""Messages name options that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import typer

import callshot
from callshot.cli import app

SOURCES = Path(callshot.__file__).parent
DOCS = SOURCES.parents[1] / "docs"
OPTION = re.compile(r"(?<![\w-])--[a-zA-Z][\w-]*")
# Options of pip, which `download.py` runs.
OTHER_PROGRAMS = {
    "--no-deps",
    "--only-binary",
    "--ignore-requires-python",
    "--no-input",
    "--dest",
    # Of Dask, in batch files.
    "--resources",
}
# Names in errors of Python functions, and options of encoders (--set).
OTHER_NAMES = {
    "coefficients",
    "count",
    "encoders",
    "hop_s",
    "margin_s",
    "n_fft",
    "onnx",
    "top_db",
    "window_s",
}


def list_options(command):
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts, parameter.name)
    for one in getattr(command, "commands", {}).values():
        yield from list_options(one)


OPTIONS = {*list_options(typer.main.get_command(app)), "--help"}


@cache
def list_nodes(path):
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def find_texts(path):
    for node in list_nodes(path):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def find_option_errors(path):
    """Yield the name that an OptionError begins with, as in `shots: expected …`."""
    for node in list_nodes(path):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "OptionError":
            message = node.args[0]
            if isinstance(message, ast.JoinedStr):
                message = message.values[0]
            if isinstance(message, ast.Constant):
                yield from re.findall(r"^([\w-]+):", str(message.value))


def test_every_option_in_a_text_of_the_program_exists():
    unknown = []
    for path in SOURCES.rglob("*.py"):
        for text in find_texts(path):
            names = set(OPTION.findall(text)) - OPTIONS - OTHER_PROGRAMS
            unknown += [(path.name, name, text[:80]) for name in names]
    assert not unknown


def test_every_option_that_an_error_is_about_exists():
    known = {name.lstrip("-") for name in OPTIONS} | OTHER_NAMES
    unknown = []
    for path in SOURCES.rglob("*.py"):
        names = set(find_option_errors(path)) - known
        unknown += [(path.name, name) for name in names]
    assert not unknown


@pytest.mark.skipif(not DOCS.exists(), reason="the documentation is not installed")
def test_every_option_in_the_documentation_exists():
    unknown = []
    for path in (*DOCS.glob("*.md"), DOCS.parent / "README.md"):
        text = path.read_text(encoding="utf-8")
        names = set(OPTION.findall(text)) - OPTIONS
        unknown += [(path.name, name) for name in names]
    assert not unknown
