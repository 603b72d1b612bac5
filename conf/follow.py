"""Run-level keys that a strategy may not follow: a preset's value is then neutral, an explicit one refused."""

from collections.abc import Mapping
from typing import Any

from florets.conf.overrides import Given
from florets.conf.problems import did_you_mean
from florets.conf.schema import Config
from florets.conf.typed import show, words_of
from florets.strategies import STRATEGIES
from florets.strategies.settings import Settings
from florets.task.keys import type_hints

CHOICES = ("averaging", "first_round", "choose_k", "loss_data", "personal")
GRADIENTS_ONLY = {"gradient_batch": None, "server_learning_rate": None, "server_optimizer": "sgd"}
"""Keys that say how gradients are averaged, and their values where they say nothing."""


def follow(
    values: dict[str, Any], settings: type[Settings], explicit: Mapping[str, Given], strategy: str
) -> list[str]:
    """Resolve the run-level choices for a strategy, in place; return one line for each explicit one it cannot follow.

    Parameters
    ----------
    values
        The configuration, with the preset's and the explicit values.
    explicit
        The keys that were given by hand.
    """
    problems = []
    for key in CHOICES:
        can, value = settings.follows.get(key, ()), values.get(key)
        if key in explicit and value is not None and value not in can:
            rule = f"takes only {' or '.join(can)}" if can else "has no such choice"
            if can and key == "choose_k" and values.get("k") != "auto":
                rule += ", with k=auto"
            # A value that another strategy takes is no slip of the keyboard.
            slip = value not in words_of(type_hints(Config)[key])
            hint = did_you_mean(show(value), can) if slip else ""
            remedy = "leave it out"
            if key == "personal" and isinstance(value, str) and value in STRATEGIES and value != strategy:
                remedy += f", or use strategy={value}"
            problems.append(f"{explicit[key].text}: strategy {strategy} {rule}; {remedy}.{hint}")
            # Whatever else is wrong with the value has been said by that.
            values[key] = None
        elif value not in can:
            values[key] = can[0] if can else None
    if "loss_data" not in settings.follows:
        if (batch := values.get("loss_batch")) is not None and "loss_batch" in explicit:
            rule = f"strategy {strategy} takes losses, if any, on all samples"
            problems.append(f"loss_batch={show(batch)}: {rule}; leave it out.")
        values["loss_batch"] = None
    if values["averaging"] != "gradients":
        able = "gradients" in settings.follows.get("averaging", ())
        for key, neutral in GRADIENTS_ONLY.items():
            if key in explicit and values.get(key) != neutral:
                remedy = "add that, or leave it out" if able else f"strategy {strategy} has none; leave it out"
                problems.append(f"{key}={show(values[key])}: has an effect only with averaging=gradients; {remedy}.")
            else:
                values[key] = neutral
    return problems


def start_of_folds(values: dict[str, Any], explicit: Mapping[str, Given]) -> list[str]:
    """Let the round that finds K by updates on folds start from updates, in place; refuse another start by hand."""
    if values.get("k") != "auto" or values.get("choose_k") != "folds":
        return []
    given = explicit.get("first_round")
    values["first_round"] = "update"
    if given is None or given.value in (None, "update"):
        return []
    return [f"{given.text}: choose_k=folds finds K in a round of updates (first_round=update); leave it out."]
