"""`florets advise`: say whether clients should be grouped, and what they should use."""

from collections.abc import Sequence

from florets.api.advise import advise_overrides
from florets.commands.given_keys import key_texts
from florets.reports.console import say

HELP = """florets advise [<key>=<value> ...]
  Should these clients be grouped, and which method fits? Searches for groups, then compares FedAvg (plain, with
  fine-tuning, with an intercept per client), Local-only, CLoVE and a model per group with a constant prediction.
  Each method is tried with three learning rates and trained until it no longer improves on validation records.
  Keys are those of an experiment, without a strategy and k; a given train.learning_rate or num_rounds is kept:

    florets advise                                           the quickstart's clients
    florets advise data_dir=DIR target=COLUMN                a folder or a table for each site, in process
    florets advise engine=flwr ...                           on Flower's simulation
    flwr run . <connection> --stream --run-config "advise=true overrides='target=COLUMN ...'"    on real nodes

  measure=accuracy, balanced_accuracy, auc, macro_f1, log_loss, r2, mae or rmse; auto: AUC if one of two classes is
  rare (under 20 % of a site's records), R2 for values, else accuracy.

Results: <results_dir>/<experiment>/advise/<other keys>/seed-<seed>/: advice.html to read, advice.json, the runs. Exit
code 1: no method is better than a constant answer."""


def main(arguments: Sequence[str]) -> int:
    """Answer the question of a command line and return the exit code: 1 where nothing can be advised."""
    found = advise_overrides(key_texts("advise", arguments))
    say(found.text)
    return 0 if found.chosen is not None else 1
