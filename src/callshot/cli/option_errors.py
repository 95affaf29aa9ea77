"""Errors of functions, which begin with the name of a parameter → with the option as typed.

Python functions say `min_length_s: expected …`, the command line `--min-length-s: expected …`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from callshot.errors import InputError, OptionError

PARAMETER = re.compile(r"([A-Za-z]\w*): (.*)", re.DOTALL)


@contextmanager
def name_options(context: Any) -> Iterator[None]:
    """Let errors in a block begin with an option or an argument of a command, as it is typed."""
    try:
        yield
    except (OptionError, InputError) as error:
        message = str(error)
        match = PARAMETER.match(message)
        if match is None:
            raise
        name, text = match.groups()
        typed = _find_typed(
            context, name, is_option_error=isinstance(error, OptionError)
        )
        if typed is not None:
            error.args = (f"{typed}: {text}",)
        raise


def _find_typed(context: Any, name: str, *, is_option_error: bool) -> str | None:
    """Return how a parameter is typed; None if the command has none of this name.

    An InputError may also begin with a file: one that exists is left as it is.
    """
    if not is_option_error and Path(name).exists():
        return None
    values = context.params
    for parameter in context.command.params:
        if parameter.name != name:
            continue
        if parameter.param_type_name == "option":
            return str(max(parameter.opts, key=len))
        if is_option_error or values.get(name) is None:
            return str(parameter.human_readable_name)
        return str(values[name])
    for choice in values.get("choices") or ():
        if choice.partition("=")[0].strip() == name:
            return f"--set {name}"
    return None
