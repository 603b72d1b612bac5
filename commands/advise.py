"""`florets advise`: say whether clients should be grouped, and what they should use."""

from collections.abc import Sequence

from florets.api.advise import advise_overrides
from florets.commands.given_keys import key_texts
from florets.reports.console import say

HELP = """florets advise [<key>=<value> ...]
  Should these clients be grouped, and which method fits? Searches for groups, then compares FedAvg (plain, with
  an intercept or coefficients per client), Local-only and a model per group with a constant prediction. Linear models
  of tables are fitted by Newton's steps with several ridges (train.ridge); others are tried with three learning
  rates, with fine-tuning and CLoVE in addition, and trained until they no longer improve on validation records.
  Keys are those of an experiment, without a strategy and k; what is given of them is kept:

    florets advise                                           the quickstart's clients
    florets advise data_dir=DIR target=COLUMN                a folder or a table for each site, in process
    florets advise engine=flwr ...                           on Flower's simulation
    flwr run . <connection> --stream --run-config "advise=true overrides='target=COLUMN ...'"    on real nodes

  measure=accuracy, balanced_accuracy, auc, macro_f1, log_loss, r2, mae or rmse; auto: log loss for classes (accuracy
  and AUC are shown in addition), R2 for values.

Results: <results_dir>/<experiment>/advise/<other keys>/seed-<seed>/: advice.html to read, advice.json, the runs. Exit
code 1: no method is better than a constant answer."""


def main(arguments: Sequence[str]) -> int:
    """Answer the question of a command line and return the exit code: 1 where nothing can be advised."""
    found = advise_overrides(key_texts("advise", arguments))
    say(found.text)
    return 0 if found.chosen is not None else 1
