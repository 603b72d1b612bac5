"""The notebooks of `examples/notebooks` run as they stand, with smaller numbers."""

from importlib.util import find_spec
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "examples" / "notebooks"
SMALL = {
    "adapters_of_groups": 'data_dir = "none"\nnum_rounds = 2\nnum_texts = 1_500',
    "groups_in_your_arrays": "num_rounds = 4",
    "a_papers_table": 'item = "ifca/synthetic"\nchoice = {"scale": "small", "rows": ["p_2_rate_1_0"], "seeds": 1}',
    "a_method_of_your_own": "num_rounds = 2\nseeds = 3",
}
"""The cell of parameters that a test puts in place of each notebook's own."""


def test_every_notebook_is_run_and_is_kept_without_outputs() -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(SMALL)
    for path in NOTEBOOKS.glob("*.ipynb"):
        cells = nbformat.read(path, as_version=4).cells
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells), path.name


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_notebook_runs(name: str, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    if name == "adapters_of_groups" and find_spec("peft") is None:
        pytest.skip('needs pip install "florets[adapters]"')
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    (parameters,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    parameters.source = SMALL[name]
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("text/html" in output.get("data", {}) for output in outputs)
    assert not [output for output in outputs if output.output_type == "error"]
