"""`Advice`: what was found, what was compared, and what follows."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from florets.server_app.advise.compare import Difference, best, choose, difference, low_sites
from florets.server_app.advise.findings import Finding
from florets.server_app.advise.methods import TITLES
from florets.server_app.advise.outcomes import Outcome


@dataclass(frozen=True)
class Advice:
    """The answer, with all that it stands on.

    Attributes
    ----------
    finding
        Whether there are groups.
    outcomes
        Of every method, the simplest first.
    chosen
        Name of the method to use.
    standardised
        What was found once every client had standardised its inputs; None where that was not looked at.
    low
        Clients that the chosen method serves worse than the others, by more than chance.
    own_is_low
        Of the clients that fit nobody, those on which every method does badly, their own model too.
    """

    finding: Finding
    outcomes: tuple[Outcome, ...]
    chosen: str
    standardised: Finding | None = None
    low: tuple[str, ...] = ()
    own_is_low: tuple[str, ...] = field(default=())

    def outcome(self, name: str) -> Outcome | None:
        """Return a method's results; None where it was not run."""
        return next((one for one in self.outcomes if one.name == name), None)

    @property
    def best(self) -> Outcome:
        """Results of the method to use."""
        found = self.outcome(self.chosen)
        assert found is not None
        return found

    def judged(self, outcome: Outcome) -> Outcome:
        """Return results without those of clients whose records no model predicts: chance alone sets them apart."""
        return outcome.without(self.own_is_low)

    @property
    def is_scale(self) -> bool:
        """Whether what sets the clients apart goes once each has standardised its inputs."""
        return self.standardised is not None and self.standardised.kind == "none"

    def against(self, name: str) -> Difference | None:
        """Return the gain of the chosen method over another on the test records; None where that was not run."""
        other = self.outcome(name)
        if other is None:
            return None
        return difference(self.judged(self.best).test, self.judged(other).test, other.metric)

    @property
    def runner_up(self) -> tuple[Outcome, Difference] | None:
        """The best of the other methods on the validation records, and the chosen one's gain over it there."""
        others = [self.judged(one) for one in self.outcomes if one.name != self.chosen]
        if not others:
            return None
        second = best(others)
        return second, difference(self.judged(self.best).validation, second.validation, second.metric)


def advise(finding: Finding, outcomes: Mapping[str, Outcome], standardised: Finding | None = None) -> Advice:
    """Return the advice that a finding and the methods' results lead to.

    The method is chosen on the validation records alone. Of the methods that none beats there by more than chance the
    simplest is taken. Where groups were found, their models and the one model for all are both simple, and the better
    of them comes first: that there are groups is settled already. Where the groups go once inputs are standardised,
    one model on standardised inputs is taken, unless another beats it. Clients that fit nobody, and on which no
    method does well, their own model neither, have no say.
    """
    # With few records a client's own model is bad, whatever these say: others' models then do better.
    low = {name: low_sites(one) for name, one in outcomes.items() if name != "standardised"}
    own_is_low = tuple(
        key
        for key in finding.lone
        if key in low.get("local", []) and all(key in low[name] for name in low if key in outcomes[name].test)
    )
    # Without groups discovery's one model is FedAvg's.
    several = finding.kind in ("groups", "lone")
    ordered = [outcomes[name] for name in TITLES if name in outcomes and (several or name != "discovery")]
    compared = [one for one in ordered if one.name != "standardised"]
    if finding.kind == "groups" and {"fedavg", "discovery"} <= outcomes.keys():
        first = best(_on_the_same([outcomes["fedavg"], outcomes["discovery"]], own_is_low))
        compared.sort(key=lambda one: one.name != first.name)
    # Where not even a client's own model predicts its records, they are no reason for or against any.
    chosen = choose([one.without(own_is_low) for one in compared])
    scaled = outcomes.get("standardised")
    if standardised is not None and standardised.kind == "none" and scaled is not None:
        chosen = choose([scaled, chosen])
    return Advice(
        finding=finding,
        outcomes=tuple(ordered),
        chosen=chosen.name,
        standardised=standardised,
        low=tuple(low_sites(outcomes[chosen.name])),
        own_is_low=own_is_low,
    )


def _on_the_same(outcomes: Sequence[Outcome], without: Collection[str]) -> list[Outcome]:
    """Return results of the clients that have one by each method, and are not in `without`."""
    common = set.intersection(*(set(one.validation) for one in outcomes)).difference(without)
    return [one.without({*one.test, *one.validation} - common) for one in outcomes]
