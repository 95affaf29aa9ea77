"""The program itself: its help, its errors, and how a command runs with progress."""

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import MISSING, Field, is_dataclass
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from callshot.errors import (
    CallshotError,
    InputError,
    OptionError,
    count_text,
    printable,
)
from callshot.options import (
    REQUIRED,
    Option,
    default_text,
    default_value,
    find_option,
    join_values,
    list_options,
    parse_names,
    parse_numbers,
    parse_pairs,
    user_type,
)

if TYPE_CHECKING:
    from callshot.records import Progress, Reject

CommandFunction = Callable[..., Any]
MAX_LINES = 8  # of rejects and of notes, on screen
MAX_REASONS = 3  # in the line about what was left out


def argument(default: Any, metavar: str, help: str, **more: Any) -> Any:
    """Return an argument of a command; `...` in place of a default: it must be given."""
    return typer.Argument(default, metavar=metavar, help=help, **more)


class Command(TyperCommand):
    """A command whose help has the default of each option, and whose errors name them as typed."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options and arguments."""
        with name_options(ctx):
            check_values_follow(self.params, args)
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with name_options(ctx):
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments, as --help shows them."""
        return _for_help(super().get_params(ctx))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, with lists of what is registered."""
        fill_help(self)
        super().format_help(ctx, formatter)


class Group(TyperGroup):
    """A command that has commands, with the same --help."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options, as --help shows them."""
        return _for_help(super().get_params(ctx))


def _for_help(parameters: list[Any]) -> list[Any]:
    """Add defaults to the help as sentences; show no type for options that take no value.

    The parameters are changed in place.
    """
    for parameter in parameters:
        is_flag = getattr(parameter, "is_flag", False)
        if is_flag:
            parameter.metavar = ""
        if parameter.param_type_name == "argument":  # no names of Python types
            parameter.display_type_rich = lambda ctx: None
        if not parameter.show_default:
            continue
        default = parameter.default
        if isinstance(parameter.show_default, str):
            default = parameter.show_default
        elif is_flag:
            default = parameter.opts[0] if default else None
        parameter.show_default = False
        if default is not None and default != "":
            parameter.help = f"{parameter.help} Default: {default}."
    return parameters


def check_values_follow(parameters: Sequence[Any], args: Sequence[str]) -> None:
    """Check that an option that takes a value is not last, or before another option.

    The parser would take that option for the value. `parameters` are those of the command, `args`
    the words that were typed.
    """
    options: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.param_type_name == "option" and not parameter.is_flag:
            options |= dict.fromkeys(parameter.opts, parameter)
    for word, value in pairwise([*args, "--"]):  # the last word has no value
        if word == "--":  # what follows are no options
            return
        if word in options and value.startswith("--"):
            option = options[word]
            meaning, _, _ = fill_text(option.help).partition(". ")
            raise OptionError(
                f"{option.name}: give a value after it ({word} {option.metavar}): "
                f"{meaning.removesuffix('.')}"
            )


def fill_help(command: Any) -> None:
    """Replace words such as {formats} in the help of options by what is registered."""
    for parameter in command.params:
        parameter.help = fill_text(parameter.help or "")


def fill_text(text: str) -> str:
    """Replace words such as {formats} in a text by what is registered."""
    if "{formats}" in text:
        from callshot.corpus.annotations import describe_formats

        text = text.replace("{formats}", describe_formats())
    if "{classifiers}" in text:
        from callshot.fewshot.classifiers import CLASSIFIERS

        helps = [f"{name}: {one.help}" for name, one in CLASSIFIERS.items()]
        text = text.replace("{classifiers}", ". ".join(helps))
    if "{exports}" in text:
        from callshot.detection.exports import describe_exports

        text = text.replace("{exports}", describe_exports())
    if "{programs}" in text:
        from callshot.detection.exports import formats_for_programs

        text = text.replace("{programs}", ", ".join(formats_for_programs()))
    return text


class Program(typer.Typer):
    """Commands whose options are those of `callshot.options`, and that take URLs as paths.

    A parameter of a command is one option, or a group of them: a dataclass, of which it gets an
    instance, or `Annotated[Given, …]` with dataclasses, of which it gets what the user gave.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=Group, rich_markup_mode="markdown", **options)

    def command(  # type: ignore[override]
        self, *names: Any, **options: Any
    ) -> Callable[[CommandFunction], CommandFunction]:
        """Register a command."""
        register = super().command(*names, cls=Command, **options)

        def decorate(function: CommandFunction) -> CommandFunction:
            """Register a function as typer must see it, and leave it as it is."""
            register(make_command(function))
            return function

        return decorate


def make_command(command: CommandFunction) -> CommandFunction:
    """Return a function that typer can run: it takes every option of a group by itself."""
    groups: dict[str, tuple[Any, dict[str, Field[Any]]]] = {}  # annotation and options
    options: dict[str, Field[Any]] = {}  # of all groups, and single ones
    parameters = []  # as typer sees them
    for parameter in inspect.signature(command).parameters.values():
        annotation = parameter.annotation
        types = [annotation, *getattr(annotation, "__metadata__", ())]
        classes: list[Any] = [kind for kind in types if is_dataclass(kind)]
        if classes:
            group_options = list_options(*classes)
            groups[parameter.name] = (annotation, group_options)
            for name, entry in group_options.items():
                parameters.append(make_parameter(name, entry, is_given=True))
            options |= group_options
            continue
        default = parameter.default
        if default is inspect.Parameter.empty:
            default = MISSING
        single = find_option(annotation, default)
        if single is not None:
            options[parameter.name] = single
            parameter = make_parameter(parameter.name, single)
        parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**values: Any) -> None:
        """Parse the values of options, make groups of them, and call the command."""
        for name, value in values.items():
            if name in options and value is not None:
                value = parse_value(name, options[name], value)
            values[name] = _replace_urls(value)
        for name, (annotation, group_options) in groups.items():
            given = {}
            for key in group_options:
                value = values.pop(key)
                if value is not None:
                    given[key] = value
            is_class = inspect.isclass(annotation)
            values[name] = annotation(**given) if is_class else given
        command(**values)

    run.__name__ = command.__name__
    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def make_parameter(
    name: str, entry: Field[Any], *, is_given: bool = False
) -> inspect.Parameter:
    """Return the parameter of an option for typer.

    With `is_given`, a command must see what the user gave: the value is None if that is nothing,
    and the help shows the default all the same.
    """
    option: Option = entry.metadata["option"]
    kind, item = user_type(entry)
    default = default_value(entry)
    if option.separated:  # by commas, in one text
        kind = str
        default = join_values(default) if default else None
    elif item is not None:
        kind = list[item]  # type: ignore[valid-type]
    shown: Any = option.shown
    if is_given and default is not REQUIRED:
        default = None
        shown = default_text(entry) or False
    names = option.names
    # Without a long name, typer makes one, and for flags --no-…, which only flags that are on need.
    is_switch = kind is bool and entry.default is not True
    if (names or is_switch) and not any(one.startswith("--") for one in names):
        names = (f"--{name.replace('_', '-')}", *names)
    made = typer.Option(
        default,
        *names,
        metavar=option.metavar,
        help=option.help,
        show_default=shown,
        **option.typer,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=made,
        annotation=kind if default is not None else kind | None,
    )


def parse_value(name: str, entry: Field[Any], value: Any) -> Any:
    """Return the value of an option as its dataclass has it, from what typer read; check it.

    None stands for an option that was not given, also for one that may be repeated.
    """
    option: Option = entry.metadata["option"]
    kind, item = user_type(entry)
    if option.separated and item is float:
        value = tuple(parse_numbers(name, value))
    elif option.separated:
        value = parse_names(value)
    elif kind is Mapping:
        value = parse_pairs(name, value, option.example) or None
    elif kind is tuple:
        value = tuple(value) or None
    option.check(name, value)
    return value


def _replace_urls(value: Any) -> Any:
    """Return an argument of a command, a path or a list of them, with RemotePaths for URLs."""
    from callshot.storage import to_path

    if isinstance(value, Path):
        return to_path(value)
    if isinstance(value, list):
        return [_replace_urls(path) for path in value]
    return value


app = Program(
    help="Classify animal calls with a few labelled examples per call type, and measure how well "
    "that works.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Headings of the commands in --help, in this order: see the order of imports in `callshot.cli`.
STUDY = "All steps at once, from recordings to a report"
STEPS = "The same steps one by one"
FIELD = "Find calls in long recordings, from a few examples"
OTHER = "Other commands"


def main() -> None:
    """Run a command; an error of ours is one line and exit code 2."""
    _set_kernel_cache()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without Unicode gets "?"
            stream.reconfigure(errors="replace")
    try:
        app()
    except CallshotError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"the output cannot be written ({error.strerror or error})")
    except MemoryError as error:
        _fail(
            f"not enough memory ({error}); for evaluate, try fewer --shots, --draws or --bootstraps"
        )


def _set_kernel_cache() -> None:
    """Store compiled kernels in our own folder where the package's folder cannot be written.

    numba runs what it finds there, and users may share $CALLSHOT_HOME: only its owner may write.
    """
    if os.access(Path(__file__).parents[1] / "fewshot" / "kernels", os.W_OK):
        return
    from callshot.storage import home

    folder = home() / "numba"
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_symlink():
            return
        folder.chmod(0o700)  # only its owner may do that
        if sys.platform == "win32" or folder.stat().st_uid == os.geteuid():
            os.environ.setdefault("NUMBA_CACHE_DIR", str(folder))


def _fail(message: str) -> NoReturn:
    """Print an error in one line, without control characters from a file, and stop."""
    print(f"callshot: {printable(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(2)


def _print_version(is_asked: bool) -> None:
    """Print the version and stop, if --version was given."""
    if is_asked:
        from callshot.study.doctor import describe_version

        for line in describe_version():
            echo(line)
        raise typer.Exit


@app.callback()
def _callshot(
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the version, the installed packages and the encoders that can run.",
        callback=_print_version,
        is_eager=True,
    ),
) -> None:
    pass


def report_left_out(
    rejects: "Sequence[Reject]", unit: str, file: Path | str, plural: str = ""
) -> None:
    """Print to standard error, also with --quiet, how many units were left out, and why.

    `file` lists all of them, "" if none does. A command calls this last.
    """
    from callshot.corpus.segments import group_rejects

    if not rejects:
        return
    sys.stdout.flush()
    groups = group_rejects(rejects)
    reasons = [f"{len(group)}: {group[0].reason}" for group in groups[:MAX_REASONS]]
    if len(groups) > MAX_REASONS:
        more = count_text(len(groups) - MAX_REASONS, "more reason")
        reasons.append(f"and {more}")
    count = count_text(len(rejects), unit, plural)
    line = f"left out: {count} ({'; '.join(reasons)})"
    if file:
        line += f"; all are in {file}"
    print(printable(line), file=sys.stderr)


def echo(line: str) -> None:
    """Print a line without control characters, which names in files may have."""
    print(printable(line))


def print_first(lines: "Sequence[str]", rest: str) -> None:
    """Print the first lines, and how many more there are; `rest` follows that number."""
    for line in lines[:MAX_LINES]:
        echo(line)
    left = len(lines) - MAX_LINES
    if left > 0:
        print(f"and {left} {rest}")


@contextmanager
def run_with_progress(first: str = "", *, quiet: bool) -> "Iterator[Progress]":
    """Show progress while a block runs; `first` is what it does until the first progress."""
    from rich.console import Console

    from callshot.console import show_progress

    options = {"first": first} if first else {}
    with ExitStack() as stack:
        if quiet:
            stack.enter_context(silence_libraries())
        progress = show_progress(Console(stderr=True), quiet=quiet, **options)
        yield stack.enter_context(progress)


@contextmanager
def silence_libraries() -> "Iterator[None]":
    """Drop what libraries in C print to standard error, as libmpg123 does; keep what we print."""
    sys.stderr.flush()
    try:
        descriptor = os.dup(2)
    except OSError:  # it is closed
        yield
        return
    stream_before = sys.stderr
    with Path(os.devnull).open("wb") as null, os.fdopen(descriptor, "w") as stream:
        try:
            if stream_before is sys.__stderr__:
                sys.stderr = stream
            os.dup2(null.fileno(), 2)
            yield
        finally:
            os.dup2(descriptor, 2)
            sys.stderr = stream_before


PARAMETER = re.compile(r"([A-Za-z]\w*): (.*)", re.DOTALL)


@contextmanager
def name_options(context: Any) -> Iterator[None]:
    """Let errors in a block begin with an option or an argument of a command, as it is typed.

        collar_s: expected …        becomes  --collar-s: expected …
        mfcc: speed: expected …     becomes  --set speed: expected …

    An InputError may also begin with a file: if that exists, the error is left as it is.
    """
    try:
        yield
    except (OptionError, InputError) as error:
        match = PARAMETER.match(str(error))
        if match is None:
            raise
        name, text = match.groups()
        is_option_error = isinstance(error, OptionError)
        if not is_option_error and Path(name).exists():
            raise
        typed, text = _find_typed(context, name, text, is_option_error=is_option_error)
        if typed:
            error.args = (f"{typed}: {text}",)
        raise


def _find_typed(
    context: Any, name: str, text: str, *, is_option_error: bool
) -> tuple[Any, str]:
    """Return the option or argument that the error `name: text` is about, as typed, and the text.

    An argument is named by its value, in an OptionError by its metavar. "" if it is about none.
    """
    values = context.params
    typed: Any = ""
    for choice in values.get("choices") or ():  # of --set
        option = choice.partition("=")[0].strip()
        is_named = text.startswith(f"{option}: ")  # after the name of the encoder
        if name == option or is_named:
            typed = f"--set {option}"
            text = text.removeprefix(f"{option}: ")
    for parameter in context.command.params:
        if parameter.name != name:
            continue
        if parameter.param_type_name == "option":
            typed = max(parameter.opts, key=len)  # --quiet, not -q
        elif is_option_error or values.get(name) is None:
            typed = parameter.metavar.strip("-. ")
        else:
            typed = values[name]
    return typed, text
