"""What every benchmark prints: one table, and with --json FILE its figures."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path


def parser(text: str | None) -> argparse.ArgumentParser:
    """Return the argument parser that all benchmarks share."""
    found = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the figures as JSON"
    )
    return found


def show(
    title: str, rows: Sequence[dict[str, object]], path: Path | None = None
) -> None:
    """Print rows as one aligned table, and write them where that is asked."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [columns, *([_cell(row.get(name, "")) for name in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    print(f"\n{title}")
    for i, line in enumerate(cells):
        left = line[0].ljust(widths[0])
        print(
            "  ".join(
                [left, *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
            ).rstrip()
        )
        if i == 0:
            print("  ".join("-" * w for w in widths))
    if path is not None:
        path.write_text(
            json.dumps({"title": title, "rows": rows}, indent=2) + "\n",
            encoding="utf-8",
        )


def _cell(value: object) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else str(value)
