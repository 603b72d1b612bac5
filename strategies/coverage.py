"""Coverage: what each protection covers of an algorithm's requests, and which keys it is compatible with."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from florets.strategies.settings import ASKS, PERSONAL, PrivacyKind, RunKeys, Settings

COVERS: dict[str, frozenset[str]] = {
    "privacy.kind": frozenset({"losses", "choices"}),
    "robust": frozenset(ASKS) - {"moments", "models"},
    "secure_aggregation": frozenset(ASKS) - {"updates", "models"},
}
"""Protections, and the requests of `Settings.asks` that each covers."""

COMPARED = 5
"""Rounds after the first in which, with central noise, clients' choices are made by comparing noised sums."""

_WITHOUT_NOISE = {
    "clustering": "kmeans",
    "matching": "min_cost",
    "square_root": False,
    "choose_by": "loss",
    "stop_when_stable": True,
    "memory": False,
}
"""Keys of algorithms that make groups without noise, with the value that makes none."""


@dataclass(frozen=True)
class Releases:
    """Releases of a client's data with noise, besides an update in each round.

    They are made `before` groups are frozen, in `each` round, and in the `first` one with first_round=update; in
    `compared` rounds clients compare models with the mean client (`Ledger.compared`). `hidden`: only the server knows
    who belongs to which group (`privacy.kind=central`), so that group sizes are noised.
    """

    before: int = 0
    each: int = 0
    first: int = 0
    compared: int = 0
    hidden: bool = False


def releases_of(settings: Settings, kind: PrivacyKind) -> Releases | None:
    """Return what a kind of noise must cover in an algorithm; None: it cannot."""
    asks = settings.asks
    if kind == "none" or asks - COVERS["privacy.kind"]:
        return None
    rounds = settings.grouping_rounds or 0
    if kind != "central":
        return Releases(before=rounds if "losses" in asks else 0, each=int("choices" in asks))
    if not asks:
        return Releases()
    # It brings NumPy, which checks of keys go without.
    from florets.strategies.core.noised_groups import PARTS

    return Releases(compared=COMPARED if "choices" in asks else rounds, first=PARTS, hidden=True)


def protection_problems(settings: Settings, run: RunKeys, algorithm: str = "the strategy") -> list[str]:
    """Return one line for each protection of a run that is incompatible with the `algorithm` or another key."""
    protections = [
        ("privacy.kind", run.privacy.kind, _of_noise),
        ("robust", run.robust, None),
        ("secure_aggregation", run.secure_aggregation, _of_masks),
    ]
    problems = []
    for name, value, further in protections:
        if value in ("none", False):
            continue
        on = f"{name}={str(value).lower()}"
        if bare := " and ".join(ASKS[asked] for asked in sorted(settings.asks - COVERS[name])):
            off = "false" if value is True else "none"
            problems.append(
                f"{on} does not cover {bare}, which {algorithm} sends; use another strategy or {name}={off}."
            )
        elif further is not None:
            problems += further(settings, run, on)
    return problems


def _of_masks(settings: Settings, run: RunKeys, on: str) -> Iterator[str]:
    """Name what needs single updates, where the server is to learn sums alone."""
    if not settings.freezes:
        yield (
            f"{on}: masks updates once groups are frozen, and the strategy with these keys never freezes them; "
            "leave it out, or use another strategy (docs/privacy.md)."
        )
    if run.robust != "none":
        yield f"{on}: robust={run.robust} looks at single updates, of which only sums come; use one of both."
    if run.personal in PERSONAL:
        yield f"{on}: personal={run.personal} has clients send statistics of their own; use one of both."


def _of_noise(settings: Settings, run: RunKeys, kind: str) -> Iterator[str]:
    """Name keys that `privacy.*` does not cover."""
    privacy, releases = run.privacy, releases_of(settings, run.privacy.kind)
    assert releases is not None
    if privacy.has_noise:
        for name, value in _WITHOUT_NOISE.items():
            if (given := getattr(settings, name, value)) != value:
                yield f"strategy.{name}={str(given).lower()}: groups by what {kind} does not cover; leave it out."
    if privacy.has_noise and "losses" in settings.asks and settings.grouping_rounds is None:
        yield (
            f"{kind}: the strategy does not say in how many rounds it groups clients, and each has a price; "
            "give its Settings grouping_rounds."
        )
    if privacy.epsilon is None:
        yield f"{kind}: needs privacy.epsilon, such as 8; inf adds no noise and gives no guarantee."
    example, local = privacy.kind == "example", privacy.kind != "central"
    delta, count = (None, 0) if example else (privacy.delta, run.num_clients)
    if delta is None and count is None and privacy.has_noise:
        yield "privacy.delta: the number of clients is not known; give it, far below 1 / clients."
    elif delta is not None and count is not None and delta * count >= 1:
        yield (
            f"privacy.delta={delta:g}: from 1 / clients on a run may give a client away; give less than "
            f"{1 / count:g}, or leave it out."
        )
    conflicts = [
        ("personal", run.personal in PERSONAL, "what is kept for single clients has no noise"),
        ("k", run.k == "auto", "losses without noise decide on the number"),
        ("robust", not local and run.robust != "none", "the noise is made for sums, and a robust rule takes none"),
        ("secure_aggregation", releases.hidden, "masks need groups whose sizes every member knows"),
        ("first_round", local and run.first_round == "update", "single clients' updates decide on groups"),
        ("statistics", local, "sums of tests have no noise"),
        ("fine_tune_epochs", local, "tests have no noise"),
        ("secure_aggregation", example, "clients add noise for themselves alone"),
        ("averaging", example and run.averaging == "gradients", "clients send models"),
        ("loss_data", example and run.loss_data == "held_out", "fewer records train"),
    ]
    for key, is_refused, why in conflicts:
        if is_refused and (value := getattr(run, key)):
            remedy = "give an integer" if key == "k" else "leave it out"
            yield f"{key}={str(value).lower()}: not covered by {kind}: {why}; {remedy}."


def least_clients(settings: Settings, run: RunKeys) -> int:
    """Return how many clients a run needs for its noise or masks, so that each round has enough; at least 1."""
    in_round = run.privacy.min_group if run.privacy.has_noise and not run.privacy.hides_records else 1
    if run.secure_aggregation:
        # It brings cryptography, which few runs need.
        from florets.task.wire.masking import LEAST

        in_round = max(run.privacy.min_group, LEAST)
    return 1 if in_round == 1 else math.ceil(in_round / max(settings.fraction_train, 1e-6) - 1e-9)


def too_few(settings: Settings, run: RunKeys, count: int | None) -> list[str]:
    """Return a line where a run has fewer clients than its noise or masks need; None: it is not known how many."""
    if count is None or count >= (needed := least_clients(settings, run)):
        return []
    key = "secure_aggregation=true" if run.secure_aggregation else f"privacy.min_group={run.privacy.min_group}"
    rate = f" (strategy.fraction_train={settings.fraction_train:g})" if settings.fraction_train < 1 else ""
    return [f"{key}: needs {needed} clients{rate}, and there are {count}; use more, or another value."]
