"""One client's test results as the columns of ``clients.csv``."""

from florets.reports.client_scores import HIGHER_IS_BETTER
from florets.strategies.base.report import Evaluation

Cell = int | float | None

TEST_CELLS = ("test_examples", "test_loss", "test_accuracy")
"""The columns that every run has."""


def test_cells(evaluation: Evaluation) -> dict[str, Cell]:
    """Return the cells by column: of the test and, where the run has them, of validation data and fine-tuned copies.

    Further scores follow the plain test's. A fine-tuned copy's columns begin with ``tuned_``; it is tested on the
    same samples, whose number stands once.
    """
    cells = _cells(evaluation)
    # In one order, whatever a client's test set defines.
    cells |= {f"test_{name}": evaluation.scores[name] for name in HIGHER_IS_BETTER if name in evaluation.scores}
    if evaluation.tuned is not None:
        tuned = _cells(evaluation.tuned)
        cells |= {f"tuned_{name}": value for name, value in tuned.items() if not name.endswith("_examples")}
    return cells


def _cells(evaluation: Evaluation) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for part, result in (("test", evaluation), ("validation", evaluation.validation)):
        if result is not None:
            cells |= {
                f"{part}_examples": result.num_examples,
                f"{part}_loss": result.loss,
                f"{part}_accuracy": result.accuracy,
            }
    return cells
