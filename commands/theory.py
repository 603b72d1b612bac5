"""`florets theory`: what a paper's theorems say about an experiment, next to its data and its run."""

from collections.abc import Sequence

from florets.api.theory import theory_overrides
from florets.commands.given_keys import key_texts
from florets.reports.console import say
from florets.reports.tables import markdown_table

HELP = """florets theory [experiment=<preset>] [<key>=<value> ...]
florets theory run=<folder>
  What the theorems of two_phase (mixed regression), clove and cfl_gp require and promise, next to an experiment's
  data, settings and run. Nothing is trained: what only a run can measure comes from the finished run of the same
  keys, or from run=<folder>. Constants that a paper leaves open are 1.

    florets theory experiment=mixed_regression/a     kappa, chi squared(n), rho, nu, the bound; m, n_H and T
    florets theory experiment=clove/theorem          separation, proximity, the conditions of Theorem 4.1
    florets theory experiment=cfl_gp/linear          the gradient gap, and the rounds that Theorem 1 asks for

  Columns: theory: what is required or promised; here: the experiment's value; holds: whether it complies. Empty: not
  known, for the reason given as the source, or not run. inf: never, or a bound that says nothing."""


def main(arguments: Sequence[str]) -> int:
    """Print the theory of an experiment, and return the exit code."""
    title, rows = theory_overrides(key_texts("theory", arguments))
    table = [["quantity", "theory", "here", "holds", "source"]]
    for row in rows:
        theory, here = ("" if value is None else f"{value:.4g}" for value in (row.theory, row.here))
        holds = {None: "", True: "yes", False: "no"}[row.holds]
        table.append([row.quantity, f"{row.rule} {theory}" if theory else "", here, holds, row.source])
    say(f"{title}\n\n{markdown_table(table)}")
    return 0
