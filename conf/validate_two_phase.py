"""Ranges and combinations of the two-phase strategy's keys."""

from collections.abc import Sequence

from florets.conf.schema import Config, TwoPhaseStrategy
from florets.conf.typed import show


def two_phase_problems(config: Config, strategy: TwoPhaseStrategy) -> list[str]:
    """Return one line per problem: the key with its value, the rule, the remedy."""
    return [*_ranges(strategy), *_anchors(config, strategy), *_needs(config, strategy)]


def _ranges(strategy: TwoPhaseStrategy) -> list[str]:
    problems = []
    for name, least in (("moment_rounds", 0), ("min_anchor_examples", 2), ("noise", 0)):
        value = getattr(strategy, name)
        if value < least:
            problems.append(f"strategy.{name}={show(value)}: must be at least {least}.")
    for name in ("alpha", "beta", "epsilon", "temperature"):
        if getattr(strategy, name) <= 0:
            problems.append(f"strategy.{name}={show(getattr(strategy, name))}: must be greater than 0.")
    if strategy.delta is not None and strategy.delta <= 0:
        problems.append(f"strategy.delta={show(strategy.delta)}: is a distance, greater than 0; null: not known.")
    if strategy.inner_steps < 2 or strategy.inner_steps % 2:
        problems.append(
            f"strategy.inner_steps={strategy.inner_steps}: must be even and at least 2, because it "
            f"multiplies by Y^T and by Y in turn; use {max(2, strategy.inner_steps + 1)}."
        )
    return problems


def _anchors(config: Config, strategy: TwoPhaseStrategy) -> list[str]:
    """Check that there are clients enough for phase 1, as far as their number alone tells."""
    problems: list[str] = []
    # Of nodes with data of their own nobody knows how many will come: phase 1 itself says where they are too few.
    known = config.task.partition != "own"
    least = config.k if config.k != "auto" else 1
    anchors, asked = strategy.anchors, strategy.subspace_clients
    if anchors != "auto" and (anchors < least or (known and anchors > config.num_clients)):
        problems.append(
            f"strategy.anchors={anchors}: must be at least k={config.k}, to find a group for each model"
            f"{f', and at most num_clients={config.num_clients}' if known else ''}."
        )
    if asked != "all" and (asked < 1 or (known and asked > config.num_clients)):
        most = f"from 1 to num_clients={config.num_clients}" if known else "at least 1"
        problems.append(f"strategy.subspace_clients={asked}: must be {most}, or all.")
    if not strategy.fresh:
        return problems
    if asked == "all":
        return [
            *problems,
            "strategy.fresh=true: needs a number as strategy.subspace_clients, not all clients at once.",
        ]
    needed = strategy.moment_rounds * asked + (least if anchors == "auto" else anchors)
    if known and needed > config.num_clients:
        problems.append(
            f"strategy.fresh=true: {strategy.moment_rounds} rounds of {asked} clients each and the anchors need "
            f"at least {needed} clients, but num_clients={config.num_clients}; lower strategy.subspace_clients or "
            "strategy.moment_rounds, or use strategy.fresh=false."
        )
    return problems


def _needs(config: Config, strategy: TwoPhaseStrategy) -> list[str]:
    problems = []
    if strategy.grouping == "threshold" and strategy.delta is None:
        problems.append(
            "strategy.grouping=threshold: joins anchors nearer than delta/2; add strategy.delta=<distance>."
        )
    if (
        strategy.labels == "hard"
        and strategy.temperature > 0
        and strategy.temperature != TwoPhaseStrategy.temperature
    ):
        problems.append(
            f"strategy.temperature={show(strategy.temperature)}: has an effect only with strategy.labels=soft; add "
            "that, or leave it out."
        )
    # The penalty of train.weight_decay is heeded: with it the local problem is solved by steps.
    linear = config.task.model == "linear" and "squared_error" in config.task.loss
    exact = strategy.local_solver == "fedprox" and linear and config.train.weight_decay == 0
    if exact and config.train.momentum > 0:
        problems.append(
            f"train.momentum={show(config.train.momentum)}: strategy.local_solver=fedprox solves linear regressions "
            "exactly, without steps; leave it out, or use strategy.local_solver=fedavg."
        )
    plain: Sequence[tuple[str, str]] = (("labels", "soft"), ("local_solver", "fedprox"))
    for name, value in plain:
        if getattr(strategy, name) == value and config.train.optimizer != "sgd":
            problems.append(
                f"strategy.{name}={value}: is defined by plain gradient steps, not by {config.train.optimizer}; "
                "add train.optimizer=sgd."
            )
    return problems
