"""What is known of encoders → what a terminal shows: a table of all, or everything about one."""

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from callshot.errors import printable
from callshot.records import EncoderStatus


def show_encoders(states: Sequence[EncoderStatus], console: Console) -> None:
    """Print a row for each encoder, and what is still to be done before it runs."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("encoder", "values", "takes", "state"):
        table.add_column(
            name, justify="right" if name == "values" else "left", no_wrap=name != "state"
        )
    for state in states:
        table.add_row(
            Text(printable(state.name)), str(state.dimension), state.input, Text(_ready(state))
        )
    console.print(table)
    console.print(
        Text(
            "callshot encoders show NAME tells all of one; onnx:PATH and hubert-base-lN are encoders too"
        )
    )


def _ready(state: EncoderStatus) -> str:
    return "ready" if not state.needs else "needs: " + ", then ".join(state.needs)


def show_encoder(choices: Mapping[str, object], state: EncoderStatus, console: Console) -> None:
    """Print everything that decides the numbers of one encoder."""
    lines = [
        f"{state.name}: {state.title}",
        f"{state.dimension} values, {state.input}; licence {state.licence}",
        f"a louder segment: {state.level}",
        "choices (--set): "
        + (", ".join(f"{name}={value}" for name, value in choices.items()) or "none"),
        *(
            f"weights: {file} from {source}, {'there' if there else 'not there'}"
            for file, source, there in state.weights
        ),
        _ready(state),
    ]
    for line in lines:
        console.print(Text(printable(line)), soft_wrap=True)
