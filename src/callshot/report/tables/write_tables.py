"""The results of corpora → all tables of a study, as LaTeX, Markdown and CSV files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from callshot.records import CorpusResults
from callshot.records.frames import Shots
from callshot.report.tables.score_tables import PAPER_SHOTS
from callshot.report.tables.table import (
    CORPUS_TABLES,
    STUDY_TABLES,
    Table,
    safe_names,
)
from callshot.report.tables.table_writers import (
    to_csv,
    to_document,
    to_latex,
    to_markdown,
)
from callshot.results import explain_errors

AllResults = Sequence[CorpusResults]

FORMATS = {".tex": to_latex, ".md": to_markdown, ".csv": to_csv}
DOCUMENT = "tables.tex"


def write_tables(
    all_results: AllResults,
    folder: Path,
    *,
    shots: Shots = PAPER_SHOTS,
    spread: str = "per-query",
) -> list[str]:
    """Write all tables in each format, and the document `tables.tex`; return the file names."""
    texts = {}
    for table in build_tables(all_results, shots=shots, spread=spread):
        for suffix, convert in FORMATS.items():
            name = f"{table.name}{suffix}"
            texts[name] = convert(table)
    latex_files = [name for name in texts if name.endswith(".tex")]
    texts[DOCUMENT] = to_document(latex_files)
    with explain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            path = folder / name
            path.write_bytes(text.encode("utf-8"))
    return list(texts)


def build_tables(
    all_results: AllResults,
    *,
    shots: Shots = PAPER_SHOTS,
    spread: str = "per-query",
) -> list[Table]:
    """Build the tables of the study, then the tables of each corpus; their names are unique."""
    built = [build(all_results) for build in STUDY_TABLES]
    names = safe_names([results.corpus for results in all_results])
    for results, name in zip(all_results, names, strict=True):
        for build in CORPUS_TABLES:
            table = build(results, shots, spread)
            if table is not None:
                built.append(replace(table, name=f"{table.name}-{name}"))
    return [table for table in built if table is not None]
