"""Chapters → every table of a study as LaTeX, Markdown and CSV, and a document that shows the LaTeX ones."""

from collections.abc import Sequence
from pathlib import Path

from callshot.records import CorpusResults
from callshot.report.output_folder import explain_errors
from callshot.report.tables.building import build_tables
from callshot.report.tables.csv import to_csv
from callshot.report.tables.latex import to_document, to_latex
from callshot.report.tables.markdown import to_markdown
from callshot.report.tables.shots import PAPER_SHOTS

WRITERS = {".tex": to_latex, ".md": to_markdown, ".csv": to_csv}
DOCUMENT = "tables.tex"


def write_tables(
    all_results: Sequence[CorpusResults],
    folder: Path,
    *,
    shots: Sequence[int] = PAPER_SHOTS,
    spread: str = "per-query",
) -> list[str]:
    """Write every table to a folder in each format, and `tables.tex`, which compiles as it is; return the names."""
    tables = build_tables(all_results, shots=shots, spread=spread)
    texts = {
        f"{table.name}{suffix}": write(table)
        for table in tables
        for suffix, write in WRITERS.items()
    }
    texts[DOCUMENT] = to_document(f"{table.name}.tex" for table in tables)
    with explain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    return list(texts)
