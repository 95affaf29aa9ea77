"""The results of corpora → all tables of a study, as LaTeX, Markdown and CSV files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from callshot.records import CorpusResults
from callshot.report.output_folder import explain_errors
from callshot.report.tables.baselines import baselines
from callshot.report.tables.classifiers import classifiers
from callshot.report.tables.comparisons import differences, intervals
from callshot.report.tables.corpora import classes, corpora, segments
from callshot.report.tables.csv import to_csv
from callshot.report.tables.file_names import safe_name, safe_names
from callshot.report.tables.latex import to_document, to_latex
from callshot.report.tables.markdown import to_markdown
from callshot.report.tables.scores import reduced, results
from callshot.report.tables.shots import PAPER_SHOTS
from callshot.report.tables.table import Table

FORMATS = {".tex": to_latex, ".md": to_markdown, ".csv": to_csv}
DOCUMENT = "tables.tex"


def write_tables(
    all_results: Sequence[CorpusResults],
    folder: Path,
    *,
    shots: Sequence[int] = PAPER_SHOTS,
    spread: str = "per-query",
) -> list[str]:
    """Write all tables in each format, and the document `tables.tex`; return the file names."""
    texts: dict[str, str] = {}
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
    all_results: Sequence[CorpusResults],
    *,
    shots: Sequence[int] = PAPER_SHOTS,
    spread: str = "per-query",
) -> list[Table]:
    """Build the tables of the study, then those of each corpus. Their names differ."""
    tables = [
        corpora(all_results),
        segments(all_results),
    ]
    names = [corpus_results.evaluation.corpus for corpus_results in all_results]
    unique_names = safe_names(names)
    for corpus_results, unique_name in zip(all_results, unique_names, strict=True):
        suffix = safe_name(corpus_results.evaluation.corpus)
        for table in _corpus_tables(corpus_results, shots, spread):
            kind = table.name.removesuffix(suffix)
            table = replace(table, name=kind + unique_name)
            tables.append(table)
    return tables


def _corpus_tables(
    corpus_results: CorpusResults,
    shots: Sequence[int],
    spread: str,
) -> list[Table]:
    """Build the tables of one corpus for which there are results."""
    tables = (
        classes(corpus_results),
        results(corpus_results, shots, spread),
        reduced(corpus_results, shots, spread),
        baselines(corpus_results),
        classifiers(corpus_results, shots),
        intervals(corpus_results, shots),
        differences(corpus_results, shots),
    )
    return [table for table in tables if table is not None]
