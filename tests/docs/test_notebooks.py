import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_ran_in_order_and_names_no_place_of_a_machine(path):
    content = path.read_text(encoding="utf-8")
    assert len(content) < 150_000
    assert not re.search(r"/home/|/root|/tmp/|/work|/Users|[A-Z]:\\\\", content)
    code = [cell for cell in json.loads(content)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert outputs
    assert not [
        output
        for output in outputs
        if output["output_type"] == "error" or output.get("name") == "stderr"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(path, tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(path, as_version=4)
    before = kinds(notebook)
    nbclient.NotebookClient(
        notebook, timeout=1500, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert kinds(notebook) == before  # what a reader sees is like what is stored


def kinds(notebook):
    """Of every cell the kinds of its outputs, but for warnings of the reader's own notebook
    software."""
    outputs = [
        [output for output in cell.get("outputs", []) if output.get("name") != "stderr"]
        for cell in notebook.cells
    ]
    return [
        [(output["output_type"], sorted(output.get("data", {}))) for output in cell_outputs]
        for cell_outputs in outputs
    ]
