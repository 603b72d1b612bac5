"""Coverage: what each protection covers of an algorithm's requests, and which keys it is compatible with."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from florets.strategies.settings import ASKS, PrivacyKind, RunKeys, Settings

COVERS: dict[str, frozenset[str]] = {
    "central": frozenset({"losses", "choices"}),
    "local": frozenset({"losses", "choices"}),
    "example": frozenset({"losses", "choices"}),
    "robust": frozenset(ASKS) - {"moments", "models"},
    "secure_aggregation": frozenset(ASKS) - {"updates", "models"},
}
"""Protections, and the requests of `Settings.asks` that each covers."""

COMPARED = 5
"""Rounds after the first in which, with central noise, clients' choices are made by comparing noised sums."""
_FOLDS = "florets.strategies.shared.client:train_folds"

_DECIDE = {
    **{"clustering": "kmeans", "matching": "min_cost", "square_root": False, "choose_by": "loss"},
    **{"stop_when_stable": True},
    **{"place_one_class": False, "memory": False},
}
"""Keys of algorithms that make groups without noise, with the value that makes none."""


@dataclass(frozen=True)
class Releases:
    """Releases of a client's data with noise, besides an update in each round.

    Attributes
    ----------
    before, each, first
        Releases for grouping in all, until groups are frozen; in each round; and in round 1, with first_round=update.
    compared
        Rounds after the first one in which clients compare models with the mean client, see `Ledger.compared`.
    hidden
        Only the server knows who belongs to which group (`privacy.kind=central`): group sizes are noised.
    handlers
        Client handlers whose answers hold only these releases.
    """

    before: int = 0
    each: int = 0
    first: int = 0
    compared: int = 0
    hidden: bool = False
    handlers: tuple[str, ...] = ()


def releases_of(settings: Settings, kind: PrivacyKind) -> Releases | None:
    """Return what a kind of noise must cover in an algorithm; None: it cannot."""
    asks = settings.asks
    if kind == "none" or asks - COVERS[kind]:
        return None
    rounds = settings.grouping_rounds or 0
    if kind == "central":
        # It brings NumPy, which checks of keys go without.
        from florets.strategies.core.noised_groups import PARTS

        if not asks:
            return Releases()
        compared = COMPARED if "choices" in asks else rounds
        return Releases(compared=compared, first=PARTS, hidden=True, handlers=(_FOLDS,))
    return Releases(before=rounds if "losses" in asks else 0, each=int("choices" in asks))


def bare(settings: Settings, protection: str) -> str:
    """Return in words what a protection leaves uncovered in an algorithm; empty: nothing."""
    found = sorted(settings.asks - COVERS[protection])
    return " and ".join(ASKS[name] for name in found)


def _name(settings: Settings) -> str:
    return type(settings).__name__.removesuffix("Settings")


def protection_problems(settings: Settings, run: RunKeys) -> list[str]:
    """Return one line for each protection of a run that is incompatible with the algorithm or another key."""
    return [*_of_noise(settings, run), *_of_robust(settings, run), *_of_masks(settings, run)]


def _of_robust(settings: Settings, run: RunKeys) -> Iterator[str]:
    """Name what clients send that counts without the rule of `robust`."""
    if run.robust == "none":
        return
    if what := bare(settings, "robust"):
        yield f"robust={run.robust}: does not cover {what}, which {_name(settings)} uses; use robust=none."


def _of_masks(settings: Settings, run: RunKeys) -> Iterator[str]:
    """Name what needs single updates, where the server is to learn sums alone."""
    on = "secure_aggregation=true"
    if not run.secure_aggregation:
        return
    if what := bare(settings, "secure_aggregation"):
        yield f"{on}: does not cover {what}, which {_name(settings)} uses; leave it out, or use another strategy."
    elif not settings.freezes:
        yield (
            f"{on}: masks updates once groups are frozen, and {_name(settings)} with these keys never freezes them; "
            "leave it out, or use another strategy (docs/privacy.md)."
        )
    if run.robust != "none":
        yield f"{on}: robust={run.robust} looks at single updates, of which only sums come; use one of both."
    if run.personal not in (None, "none"):
        yield f"{on}: personal={run.personal} has clients send statistics of their own; use one of both."


def _of_noise(settings: Settings, run: RunKeys) -> Iterator[str]:
    """Name keys that `privacy.*` does not cover."""
    privacy = run.privacy
    if privacy.kind == "none":
        return
    kind, releases, example = f"privacy.kind={privacy.kind}", releases_of(settings, privacy.kind), False
    if releases is None:
        yield (
            f"{kind}: its noise does not cover {bare(settings, privacy.kind)}, which {_name(settings)} uses; use "
            "another strategy (docs/privacy.md), or privacy.kind=none."
        )
        return
    example, local, start = privacy.kind == "example", privacy.kind != "central", run.first_round
    if privacy.has_noise:
        for name, value in _DECIDE.items():
            if (given := getattr(settings, name, value)) != value:
                yield f"strategy.{name}={str(given).lower()}: groups by what {kind} does not cover; leave it out."
    if privacy.has_noise and "losses" in settings.asks and settings.grouping_rounds is None:
        yield (
            f"{kind}: {_name(settings)} does not say in how many rounds it groups clients, and each has a price; "
            "give its Settings grouping_rounds."
        )
    if privacy.epsilon is None:
        yield f"{kind}: needs privacy.epsilon, such as 8; inf adds no noise and gives no guarantee."
    delta, count = (None, 0) if example else (privacy.delta, run.num_clients)
    if delta is None and count is None and privacy.has_noise:
        yield "privacy.delta: the number of clients is not known; give it, far below 1 / clients."
    elif delta is not None and count is not None and delta * count >= 1:
        yield (
            f"privacy.delta={delta:g}: from 1 / clients on a run may give a client away; give less than "
            f"{1 / count:g}, or leave it out."
        )
    rows: list[tuple[str, Any, str]] = [
        ("robust", "none" if local else run.robust, "the noise is made for sums, and a robust rule takes none"),
        (
            "secure_aggregation",
            run.secure_aggregation and releases.hidden,
            "masks need groups whose sizes every member knows",
        ),
        ("secure_aggregation", example and run.secure_aggregation, "clients add noise for themselves alone"),
        ("averaging", run.averaging if example and run.averaging != "models" else None, "clients send models"),
        ("loss_data", run.loss_data if example and run.loss_data != "train" else None, "fewer records train"),
        ("personal", run.personal, "what is kept for single clients has no noise"),
        ("first_round", start if local and start == "update" else None, "single clients' updates decide on groups"),
        (
            "k",
            run.k if run.k == "auto" else None,
            "losses without noise decide on the number",
        ),
        ("statistics", local and run.statistics, "sums of tests have no noise"),
        ("fine_tune_epochs", local and run.fine_tune_epochs, "tests have no noise"),
    ]
    for key, value, why in rows:
        if value not in (None, "none", False, 0):
            remedy = "give an integer" if key == "k" else "leave it out"
            yield f"{key}={str(value).lower()}: not covered by {kind}: {why}; {remedy}."


def least_clients(settings: Settings, run: RunKeys) -> int:
    """Return how many clients a run needs for its noise or masks, so that each round has enough; at least 1."""
    in_round = run.privacy.least_group if run.privacy.has_noise else 1
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
