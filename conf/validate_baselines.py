"""What can be refused of the oracle, of one-shot clustering and of k-FED without looking at any data."""

from florets.conf.schema import Config, KFedStrategy, OneShotStrategy, OracleStrategy


def baseline_problems(config: Config) -> list[str]:
    """Return one line per problem: the key with its value, the rule, the remedy."""
    if isinstance(config.strategy, OracleStrategy):
        return _oracle(config, config.strategy)
    if isinstance(config.strategy, OneShotStrategy):
        return _one_shot(config, config.strategy)
    if isinstance(config.strategy, KFedStrategy):
        return _k_fed(config, config.strategy)
    return []


def _oracle(config: Config, strategy: OracleStrategy) -> list[str]:
    true = config.task.num_clusters
    if strategy.mode == "true_start":
        if strategy.init == "different":
            return []
        return [f"strategy.init={strategy.init}: the true models are the start of true_start; leave it out."]
    # Nodes with data of their own may tell their cluster in their node config.
    if true == 0 and config.task.partition != "own":
        return [
            "strategy.mode=labels: the oracle needs the true clusters, and this task has none (task.num_clusters=0); "
            "use another strategy."
        ]
    if config.k != "auto" and 1 <= config.k < true:
        return [f"k={config.k}: the oracle trains a model for each of task.num_clusters={true}; use k={true}."]
    return []


def _one_shot(config: Config, strategy: OneShotStrategy) -> list[str]:
    problems, task = [], config.task
    if strategy.estimate_epochs < 1:
        problems.append(f"strategy.estimate_epochs={strategy.estimate_epochs}: must be at least 1.")
    linear = task.model == "linear" or ":" in task.model
    if strategy.estimate == "least_squares" and not (linear and "squared_error" in task.loss):
        problems.append(
            "strategy.estimate=least_squares: is for linear regressions (task.model=linear and a squared error), not "
            f"for task.model={task.model} with task.loss={task.loss}; use strategy.estimate=train."
        )
    return problems


def _k_fed(config: Config, strategy: KFedStrategy) -> list[str]:
    if strategy.local_clusters < 1:
        return [f"strategy.local_clusters={strategy.local_clusters}: must be at least 1."]
    if config.k != "auto" and strategy.local_clusters > config.k >= 1:
        return [
            f"strategy.local_clusters={strategy.local_clusters}: a client cannot hold more groups than k={config.k}; "
            "lower it, or raise k."
        ]
    return []
