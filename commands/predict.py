"""`florets predict`: predictions of a finished run's model for new inputs."""

from collections.abc import Mapping, Sequence

from florets.api.new_data import FORM_KEYS, MOST_CLASSES, chosen_model, predict_data, read_data
from florets.commands.assign import HELP, absolute, new_file, on_run, print_notes
from florets.reports.console import counted
from florets.server_app.run_models import RunModels

__all__ = ["HELP", "main"]

_KEYS = ("run", "data", "model", "client", "output", "trust", *FORM_KEYS)


def main(arguments: Sequence[str]) -> int:
    """Write predictions, and return the exit code."""
    return on_run("predict", arguments, _KEYS, _predict)


def _predict(run: RunModels, given: Mapping[str, str]) -> None:
    state, whose = chosen_model(run, absolute(given["run"]), given)
    target = new_file(given.get("output", "predictions.csv"), ".csv")
    new = read_data(run, absolute(given["run"]), given, labelled=False)
    print_notes(new, given)
    found = predict_data(run, state, whose, new)
    if len(found.classes) > MOST_CLASSES:
        print(f"The file has the probability of the predicted class alone: the run has {len(found.classes)} classes.")
    found.write(target)
    for name, counts in found.counts.items():
        if counts.any():
            print(f"{name}: {counted(int(counts.sum()), 'value')} in {counted(int((counts > 0).sum()), 'record')}")
    what = found.target and f", {found.target}"
    unit = found.unit and f" in {found.unit}"
    print(f"{counted(len(found), 'prediction')} of {whose}{what}{unit}: {target}")
