"""Ranges and combinations of CFL-GP's keys."""

from florets.conf.ranges import at_least
from florets.conf.schema import CflGpStrategy, Config
from florets.conf.typed import show


def cfl_gp_problems(own: CflGpStrategy, config: Config) -> list[str]:
    """Return one line per problem: the key with its value, the rule, the remedy."""
    problems = at_least(
        1,
        **{"strategy.period": own.period, "strategy.compression": own.compression, "strategy.k_warmup": own.k_warmup},
    )
    problems += at_least(0, **{"strategy.quantise_digits": own.quantise_digits})
    if own.gradient_batch not in ("full", None):
        problems += at_least(1, **{"strategy.gradient_batch": int(own.gradient_batch)})
    if own.cluster_rounds is not None:
        problems += at_least(2, **{"strategy.cluster_rounds": own.cluster_rounds})
    if not 0 <= own.stop_unchanged <= 1:
        problems.append(
            f"strategy.stop_unchanged={show(own.stop_unchanged)}: is a share, at least 0 and at most 1; "
            "0 means never."
        )
    if config.k == "auto":
        problems += _never_finds_k(own, config)
    if own.gradient_batch is not None and own.averaging == "models":
        problems.append(
            f"strategy.gradient_batch={show(own.gradient_batch)}: has an effect only with "
            "strategy.averaging=gradients; add that, or leave it out."
        )
    return [*problems, *_idle(own, config)]


def _idle(own: CflGpStrategy, config: Config) -> list[str]:
    """Refuse settings that would silently do nothing."""
    idle = {
        "k_warmup": ("k=auto", config.k != "auto"),
        "quantise_digits": ("strategy.quantise=round or truncate", own.quantise == "none"),
    }
    return [
        f"strategy.{name}={show(getattr(own, name))}: has an effect only with {needed}; add that, or leave it out."
        for name, (needed, is_idle) in idle.items()
        if is_idle and 1 <= getattr(own, name) != getattr(CflGpStrategy, name)
    ]


def _never_finds_k(own: CflGpStrategy, config: Config) -> list[str]:
    """Return a problem if no clustering comes after the warm-up."""
    rounds = {"num_rounds": config.num_rounds}
    if own.cluster_rounds is not None:
        rounds["strategy.cluster_rounds"] = own.cluster_rounds
    # Clusterings are in rounds 2, 2 + period, and so on; a period out of range is another problem.
    period, last = max(own.period, 1), min(rounds.values())
    last_clustering = 2 + period * ((last - 2) // period) if last >= 2 else 0
    if own.k_warmup < last_clustering:
        return []
    # The first clustering after the warm-up.
    needed = 2 + period * max(-(-(own.k_warmup - 1) // period), 0)
    remedy = " ".join(f"{name}={needed}" for name, number in rounds.items() if number < needed)
    if last_clustering:
        remedy = f"strategy.k_warmup={last_clustering // 2} or {remedy}"
    found = f"is in round {last_clustering}" if last_clustering else "never comes"
    return [
        f"k=auto: K is found at the clusterings after round strategy.k_warmup={own.k_warmup}, but the last one "
        f"{found} (the first is in round 2, with one every strategy.period={own.period} rounds); add {remedy}."
    ]
