"""The examples run as they are, on less data."""

import ast
import json
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_the_quickstart_notebook_runs_and_shows_a_plot_and_a_comparison(
    tmp_path, monkeypatch
):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((EXAMPLES / "quickstart.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in code_cells(notebook)]
    assert "scale=0.3" in cells[0]
    cells[0] = cells[0].replace("scale=0.3", "scale=0.1")
    few = "bootstraps=200, shared_draws=120, total_samples=120, permutations=9"
    assert 'shots="1-5,10"' in cells[1]
    cells[1] = cells[1].replace('1-5,10"', f'1,5", draws=20, {few}')
    variables = {}
    tables = [run_cell(cell, variables) for cell in cells]
    assert any("k* =" in table for table in tables)
    assert any("LR on mfcc" in table for table in tables)
    assert pyplot.get_fignums()
    pyplot.close("all")


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cell(source, variables):
    """Run a cell as a notebook does; return what it shows of its last line."""
    is_shown = isinstance(ast.parse(source).body[-1], ast.Expr)
    *lines, last = source.rstrip().splitlines()
    if is_shown and not last.endswith(";"):
        lines.append(f"shown = {last}")
        exec("\n".join(lines), variables)
        shown = variables["shown"]
        return shown._repr_html_() if hasattr(shown, "_repr_html_") else ""
    exec(source, variables)
    return ""
