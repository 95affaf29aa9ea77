"""The examples run as they are, on less data."""

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_the_quickstart_notebook_runs_and_shows_a_plot_and_a_comparison(
    tmp_path, monkeypatch
):
    nbclient = pytest.importorskip(
        "nbclient", reason="nbclient runs notebooks: pip install it"
    )
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    notebook = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    synthesis = notebook.cells[1]
    assert "scale=0.3" in synthesis.source
    synthesis.source = synthesis.source.replace("scale=0.3", "scale=0.1")
    nbclient.NotebookClient(
        notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    data = [output["data"] for output in outputs if "data" in output]
    assert any("image/png" in one for one in data)
    tables = [one["text/html"] for one in data if "text/html" in one]
    assert any("k* =" in table for table in tables)
    assert any("LR on mfcc" in table for table in tables)
    statements = [
        line
        for cell in code[1:]
        for line in cell.source.splitlines()
        if line and "import" not in line
    ]
    assert len(statements) <= 10
