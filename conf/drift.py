"""Checks of `task.drift`, the groups that change in a simulation."""

import dataclasses

from florets.conf.schema import Config, DriftConfig
from florets.conf.typed import show

_SPANS = {"gradual": "the rounds until all data are new", "returning": "the rounds until all is as before"}


def drift_problems(config: Config) -> list[str]:
    """Return one line for each setting of drift that cannot work: key and value, rule, remedy."""
    drift = config.task.drift
    if not drift.rounds:
        default = DriftConfig()
        changed = [f for f in dataclasses.fields(drift) if getattr(drift, f.name) != getattr(default, f.name)]
        return [
            f"task.drift.{field.name}={show(getattr(drift, field.name))}: has an effect only with task.drift.rounds, "
            "such as [15]; add that, or leave it out."
            for field in changed
        ]
    problems = _rounds(config) + _span(drift)
    given = f"task.drift.rounds={show(drift.rounds)}"
    if config.task.partition == "own":
        problems.append(
            f"{given}: simulation only; real nodes bring their own data (task.partition=own), which change as they "
            "do. Leave it out."
        )
    elif config.task.num_clusters == 0:
        problems.append(
            f"{given}: groups change that are known, and this task has none (task.num_clusters=0); leave it out, or "
            "use a partition with true clusters."
        )
    elif config.task.num_clusters == 1 and drift.moves == "clients":
        problems.append(
            f"{given}: clients move between groups, and task.num_clusters=1; use task.drift.moves=concepts, or more "
            "groups."
        )
    if config.task.validation_fraction > 0:
        problems.append(
            f"task.validation_fraction={show(config.task.validation_fraction)}: what is held out in one round would "
            "be trained on in another (task.drift.rounds); leave out one of them."
        )
    if config.loss_data == "held_out":
        problems.append(
            "loss_data=held_out: what is held out in one round would be trained on in another (task.drift.rounds); "
            "use loss_data=train."
        )
    if drift.moves == "concepts" and config.task.loss != "cross_entropy":
        problems.append(
            f"task.drift.moves=concepts: renames labels, which task.loss={config.task.loss} does not use; use "
            "task.drift.moves=clients."
        )
    return problems


def _rounds(config: Config) -> list[str]:
    rounds, given = config.task.drift.rounds, f"task.drift.rounds={show(config.task.drift.rounds)}"
    total = config.strategy.settings.first_rounds + config.num_rounds
    problems = []
    if min(rounds) < 2:
        problems.append(f"{given}: must be at least 2; round 1 has the first data.")
    if rounds != sorted(set(rounds)):
        problems.append(f"{given}: must ascend; sort them and name each once.")
    if max(rounds) > total:
        problems.append(f"{given}: must be rounds of the run, which has {total}; lower them, or raise num_rounds.")
    return problems


def _span(drift: DriftConfig) -> list[str]:
    if drift.kind not in _SPANS:
        if drift.span is None:
            return []
        return [
            f"task.drift.span={drift.span}: has no effect with task.drift.kind={drift.kind}; leave it out, or use "
            f"task.drift.kind={' or '.join(_SPANS)}."
        ]
    if drift.span is None:
        return [f"task.drift.kind={drift.kind}: needs task.drift.span, {_SPANS[drift.kind]}; add it."]
    gaps = [later - earlier for earlier, later in zip(drift.rounds, drift.rounds[1:], strict=False)]
    if min(gaps, default=drift.span) < drift.span:
        return [
            f"task.drift.rounds={show(drift.rounds)}: a change takes task.drift.span={drift.span} rounds, and the "
            "next one must not begin before it is over; move them apart, or lower the span."
        ]
    return []
