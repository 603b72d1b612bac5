"""Ranges and combinations of CFL-GP's keys."""

from conf.ranges import at_least
from conf.schema import CflGpStrategy, Config
from conf.typed import show


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
    last = config.num_rounds if own.cluster_rounds is None else min(own.cluster_rounds, config.num_rounds)
    if config.k == "auto":
        problems += _never_finds_k(own, last)
    if own.gradient_batch is not None and own.averaging == "models":
        problems.append(
            f"strategy.gradient_batch={show(own.gradient_batch)}: has an effect only with "
            "strategy.averaging=gradients; add that, or leave it out."
        )
    return problems


def _never_finds_k(own: CflGpStrategy, last: int) -> list[str]:
    """Return a problem if no clustering among the first `last` rounds comes after the warm-up."""
    # Clusterings are in rounds 2, 2 + period, and so on; a period out of range is another problem.
    period = max(own.period, 1)
    last_clustering = 2 + period * ((last - 2) // period) if last >= 2 else 0
    if own.k_warmup < last_clustering:
        return []
    most = f"at most {last_clustering - 1}" if last_clustering else "not possible here"
    return [
        f"k=auto: strategy.k_warmup={own.k_warmup} leaves none of the {last} rounds that cluster to find K in: the "
        f"first clustering is in round 2, and one follows every strategy.period={own.period} rounds; lower "
        f"strategy.k_warmup ({most}), or use more rounds."
    ]
