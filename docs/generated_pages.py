"""Pages of the documentation that are made from the code, so that they cannot differ from it.

mkdocs calls `on_files` before it builds: commands and their options from the command line itself,
encoders and formats from their registries, columns of results from their schemas, Python functions
from their docstrings, the notebook from examples/, changes from CHANGELOG.md.
"""

import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# iframe-worker 1.0.4 (MIT, npm), which lets the search work on pages that are opened from a folder.
# The theme loads it from a server; the site has its own, unchanged copy.
SEARCH_ADDRESS = "https://unpkg.com/iframe-worker/shim"
SEARCH_FILE = "offline-search/iframe-worker.min.js"
SEARCH_SHA256 = "e8e412dbcfea9b7e31b5ffa288d7b6035915e714c542f4176a0cdbe262fc9609"
# Schemas that are parts of others, and no frame.
PARTS = ("TYPES", "CURVE_KEY", "SUMMARY", "DETECTED")
# Where pages may not link to: files of the repository that are no pages.
FILE_LINK = re.compile(r"\[([^\]]+)\]\(\.\./[^)]+\)")
PAGE_LINK = re.compile(r"\]\(docs/")


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the files of the site."""
    from mkdocs.structure.files import File

    for name, text in make_pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Show files of the repository by their name, without a link: the site does not have them."""
    return FILE_LINK.sub(r"`\1`", markdown)


def on_post_page(output: str, **_: Any) -> str:
    """Load the script of the search from the site itself."""
    return output.replace(SEARCH_ADDRESS, SEARCH_FILE)


def make_pages() -> dict[str, str]:
    """Return the text of each generated page by its name."""
    return {
        "options.md": "\n".join(describe_commands()),
        "registries.md": "\n".join(describe_registries()),
        "columns.md": "\n".join(describe_columns()),
        "python.md": "\n".join(describe_python()),
        "notebook.md": "\n".join(describe_notebook()),
        "changes.md": PAGE_LINK.sub("](", (ROOT / "CHANGELOG.md").read_text("utf-8")),
    }


def describe_commands() -> Iterator[str]:
    """Yield the lines of a page with every command, its help and its options."""
    yield "# All options"
    yield ""
    yield "What `callshot COMMAND --help` prints, on one page."
    yield ""
    for name, command in list_commands():
        yield f"## callshot {name}"
        yield ""
        yield _clean(command.help or "", keep_lines=True)
        yield ""
        yield from _describe_options(command)
    yield from describe_study_keys()


def describe_study_keys() -> Iterator[str]:
    """Yield the tables of a study file with their keys."""
    from callshot.options import STUDY_TABLES

    yield "## study.toml"
    yield ""
    yield (
        "The keys of the tables of a study file. Paths are relative to the file. What commands "
        "separate by commas, or repeat, is a list; a flag is `true` or `false`."
    )
    for table, classes in STUDY_TABLES.items():
        heading = {"": "At the top", "corpus": "[corpus.NAME]"}.get(table, f"[{table}]")
        yield ""
        yield f"### {heading}"
        yield from _describe_fields(*classes)


def _describe_fields(*classes: type) -> Iterator[str]:
    """Yield a table of the options of dataclasses; nothing if they have none."""
    from callshot.cli.app import fill_text
    from callshot.options import default_text, list_options

    options = list_options(*classes)
    if not options:
        return
    yield ""
    yield "| name | meaning | default |"
    yield "|---|---|---|"
    for name, entry in options.items():
        text = _clean(fill_text(entry.metadata["option"].help))
        default = default_text(entry)
        if isinstance(entry.default, bool):
            default = str(entry.default).lower()
        elif entry.metadata["option"].separated and not entry.default:
            default = "none"
        yield f"| `{name}` | {text} | {_clean(default)} |"


def list_commands() -> list[tuple[str, Any]]:
    """Return all commands with their names, also those within groups."""
    import typer

    from callshot.cli import app
    from callshot.cli.app import fill_help

    commands = []

    def add(group: Any, prefix: str) -> None:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                add(command, f"{prefix}{name} ")
            else:
                fill_help(command)
                commands.append((f"{prefix}{name}", command))

    add(typer.main.get_command(app), "")
    return commands


def _describe_options(command: Any) -> Iterator[str]:
    """Yield a table of the arguments and options of a command."""
    if not command.params:
        return
    yield "| option | meaning | default |"
    yield "|---|---|---|"
    for parameter in command.params:
        name = ", ".join(f"`{word}`" for word in parameter.opts)
        if parameter.param_type_name == "argument":
            name = f"`{parameter.metavar or parameter.name.upper()}`"
        help_text = _clean(getattr(parameter, "help", None) or "")
        yield f"| {name} | {help_text} | {_default(parameter)} |"
    yield ""


def _default(parameter: Any) -> str:
    """Return the default of an option as --help shows it; empty where it shows none."""
    shown = getattr(parameter, "show_default", True)
    if isinstance(shown, str):
        return _clean(shown)
    if parameter.required:
        return "required"
    if not shown or parameter.default in (None, False, (), []):
        return ""
    return f"`{parameter.default}`"


def _clean(text: str, *, keep_lines: bool = False) -> str:
    """Return a text that a Markdown page shows as it is; in a cell, on one line."""
    text = inspect.cleandoc(text).replace("\b", "").replace("<", "&lt;")
    if keep_lines:
        return text
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


def describe_registries() -> Iterator[str]:
    """Yield a page with all encoders and all formats."""
    from callshot.corpus.annotations import FORMATS
    from callshot.detection.exports import EXPORTS
    from callshot.encoders.catalogue import ENCODERS, PATTERNS

    yield "# Encoders and formats"
    yield ""
    yield "## Encoders"
    yield ""
    yield "| name | what it is | values | takes | extra | licence of the weights | citation |"
    yield "|---|---|---|---|---|---|---|"
    for spec in ENCODERS:
        facts = (spec.dimension, spec.input, spec.extra or "", spec.licence)
        cells = [spec.title, *facts, spec.citation]
        yield f"| `{spec.name}` | {' | '.join(_clean(str(cell)) for cell in cells)} |"
    yield ""
    yield f"Further names: {', '.join(f'`{pattern}`' for pattern in PATTERNS)}."
    yield ""
    yield "## Annotation formats"
    yield ""
    yield "| name | suffixes | written too | read with |"
    yield "|---|---|---|---|"
    for one in FORMATS:
        written = "yes" if one.write is not None else ""
        suffixes = " ".join(one.suffixes)
        yield f"| `{one.name}` | {suffixes} | {written} | {one.package or 'callshot'} |"
    yield ""
    yield "## Output formats of events"
    yield ""
    yield "| name | what it writes | `scan --to` | page of a review |"
    yield "|---|---|---|---|"
    for name, export in EXPORTS.items():
        text = (export.write.__doc__ or "").partition("\n")[0].removeprefix("Yield ")
        marks = [
            "yes" if mark else "" for mark in (export.for_programs, export.on_page)
        ]
        yield f"| `{name}` | {text} | {marks[0]} | {marks[1]} |"
    yield ""


def describe_columns() -> Iterator[str]:
    """Yield a page with the columns of every data frame of results, from their schemas."""
    from callshot.records import frames

    yield "# Columns of results"
    yield ""
    yield "```text"
    yield inspect.getdoc(frames) or ""
    yield "```"
    comments = _find_comments(inspect.getsource(frames))
    for name, schema in vars(frames).items():
        if not name.isupper() or not isinstance(schema, dict) or name in PARTS:
            continue
        yield ""
        yield f"## {name.lower()}"
        yield ""
        yield _clean(comments.get(name, ""))
        yield ""
        yield "| column | type |"
        yield "|---|---|"
        for column, kind in schema.items():
            yield f"| `{column}` | {kind} |"


def _find_comments(source: str) -> dict[str, str]:
    """Return the comment above each assignment at the top of a module.

    >>> _find_comments("# One row a call.\\nEVENTS: Schema = {}\\n")
    {'EVENTS': 'One row a call.'}
    """
    comments = {}
    above: list[str] = []
    for line in source.splitlines():
        if line.startswith("# "):
            above.append(line[2:])
            continue
        match = re.match(r"([A-Z_]+)\b.* = ", line)
        if match and above:
            comments[match[1]] = " ".join(above)
        above = []
    return comments


def describe_python() -> Iterator[str]:
    """Yield a page with the docstring of every public name."""
    import callshot

    yield "# Python"
    yield ""
    yield "The public names of `callshot`; the examples are run by the tests."
    for name in sorted(callshot.__all__, key=str.lower):
        one = getattr(callshot, name)
        module = getattr(one, "__module__", None)
        if module is None or not module.startswith("callshot"):
            continue
        yield ""
        yield f"::: {module}.{one.__name__}"
        if is_dataclass(one):
            yield from _describe_fields(one)


def describe_notebook() -> Iterator[str]:
    """Yield the notebook as a page: texts, code, and what it printed if that is kept."""
    notebook = json.loads((ROOT / "examples" / "quickstart.ipynb").read_text("utf-8"))
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            yield f"```python\n{text}\n```\n"
        else:
            yield f"{text}\n"
