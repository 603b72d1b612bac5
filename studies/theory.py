"""What the theorems of the papers ask of an experiment and promise it, next to what its data and its run have."""

import inspect
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist, pdist

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.reports.summary import found_ari, last, reaches, read_lines
from florets.server_app.build import build_checked, build_task
from florets.strategies.core import FloatArray, IntArray
from florets.strategies.registry import find_strategy
from florets.strategies.two_phase.moment_descent import num_anchors
from florets.task.randomness import Purpose, generator
from florets.task.registry import resolve
from florets.task.training.loop import gradient
from florets.task.training.losses import loss_vector
from florets.task.wire import bank

FAILS = 0.05
"""The probability delta with which a statement may fail."""
_ALL_RIGHT = 1 - 1e-9
_RULES: dict[str, Callable[[float, float], bool]] = {
    "at least": operator.ge,
    "at most": operator.le,
    "exactly": operator.eq,
}
_NOT_KNOWN = "not known: the data have no true models"
_OF_LINEAR = "not known: only for linear models, the square loss and, of two_phase, train=sgd"


class Row(NamedTuple):
    """A quantity: by which rule it should be what theory says, and what it is here; None is not known, or not run."""

    quantity: str
    rule: str
    theory: float | None
    here: float | None
    holds: bool | None
    source: str


def _row(quantity: str, here: float | None, source: str, rule: str = "", theory: float | None = None) -> Row:
    known = rule and theory is not None and here is not None
    return Row(quantity, rule, theory, here, bool(_RULES[rule](here, theory)) if known else None, source)  # type: ignore[arg-type]  # both known


class Case:
    """An experiment with its data, and the rounds of its run in a folder, if there is one."""

    def __init__(self, config: Config, folder: Path | None) -> None:
        self.config, self.settings, self.task = config, config.strategy.settings, build_task(config)
        self.lines = [] if folder is None else read_lines(folder)
        clients = range(self.task.num_clients)
        self.clusters: IntArray = np.array([self.task.cluster_of(client) for client in clients])
        self.sizes: IntArray = np.array([self.task.num_examples_of(client) for client in clients])
        self.num_clusters = len(np.unique(self.clusters))
        found = self.task.data.true_models
        self.true_models = None if found is None else found.astype(np.float64)

    @cached_property
    def start(self) -> Any:
        """The first models, with those that the strategy has in addition."""
        return build_checked(self.config, self.task)[1].record

    @property
    def states(self) -> list[dict[str, Any]]:
        """The first models as PyTorch loads them."""
        return [one.to_torch_state_dict() for one in bank.models(self.start)]

    def option(self, name: str, default: Any) -> Any:
        """Return an option of the data, as given or by their own default."""
        own = inspect.signature(resolve("data", self.task.spec.data)).parameters.get(name)
        return self.task.spec.data_options.get(name, default if own is None else own.default)

    @property
    def covariance(self) -> tuple[float, float]:
        """Bounds alpha and beta on the eigenvalues of the inputs' covariance: as drawn, or else as measured."""
        if self.option("features", "") == "identity":
            root = float(self.option("covariance_spread", 1.0)) ** 0.5
            return 1 / root, root
        data = self.task.data
        x, group = data.x_train.reshape(len(data.x_train), -1).astype(np.float64), data.group_train
        parts = [x] if group is None else [x[group == one] for one in np.unique(group)]
        values = np.stack([np.linalg.eigvalsh(part.T @ part / len(part)) for part in parts])
        return float(values.min()), max(1.0, float(values.max()))

    def recovery(self, source: str, theory: float | None = None) -> Iterator[Row]:
        """Return when the run found the true groups, and its ARI at the end."""
        found = next((line["round"] for line in self.lines if reaches(line, _ALL_RIGHT)), None)
        # Never found, it is no round at all.
        never = math.inf if any(found_ari(line) is not None for line in self.lines) else None
        yield _row("first round with ARI 1", never if found is None else found, source, "exactly", theory)
        yield _row("ARI at the end", last(self.lines, "ari"), "run")


def theory_of(config: Config, folder: Path | None) -> list[Row]:
    """Return the theory of an experiment, and what the run in a folder measured of it.

    Raises
    ------
    ConfigError
        If the strategy has no theorem here, or the groups are not known.
    """
    name = find_strategy(config.strategy.name).id
    if name not in _THEORIES:
        raise ConfigError(f"strategy={name}: has no theorem here; these have: {', '.join(_THEORIES)}.")
    if config.task.partition == "own":
        raise ConfigError("task.partition=own: sites' data are not at hand here; give a preset of simulated clients.")
    case = Case(config, folder)
    if case.clusters.min() < 0 or case.num_clusters < 2:
        why = "are not known" if case.clusters.min() < 0 else "are one alone"
        raise ConfigError(
            f"task.partition={config.task.partition}: the clients' true groups {why}, and all that theory says is of "
            "several; use a partition that makes groups, with task.num_clusters of at least 2."
        )
    return list(_THEORIES[name](case))


def chi_squared(sizes: IntArray) -> float:
    """Return the chi-squared divergence of the clients' shares of all samples from equal shares.

    Source: mixed regression, Sec. IV-B, quantity skewness.
    """
    return float(len(sizes) * np.square(sizes / sizes.sum() - 1 / len(sizes)).sum())


def stability(gamma: float, steps: int, proximal: bool = False) -> float:
    """Return kappa of `steps` local steps, or of the proximal step; NaN of steps with gamma of 1 or more.

    Source: mixed regression, Sec. IV-B: gamma s / (1 - (1 - gamma)^s), printed with gamma^s, which would be below 1.
    """
    if proximal:
        return 1 + gamma
    return gamma * steps / (1 - (1 - gamma) ** steps) if gamma < 1 else math.nan


def clustering_error(sizes: IntArray, d: int, k: int, alpha: float, signal: float) -> tuple[float, float]:
    """Return both parts of nu: the mean of p_e(n_i) over samples, and the uniform deviation; `signal` is Delta/sigma.

    Source: mixed regression, Eq. (9), with c = C = 1.
    """
    wrong = 4 * k * np.exp(-sizes * alpha**2 * min(1.0, signal**2) ** 2)
    deviation = math.sqrt(d * k * math.log(k) / len(sizes) * (chi_squared(sizes) + 1))
    return float((sizes * wrong).sum() / sizes.sum()), deviation


def proximity(vectors: FloatArray, centres: FloatArray, clusters: IntArray) -> tuple[float, float]:
    """Return the norm of the centred loss vectors (M, N), and the largest c' with which they satisfy Theorem A.9.

    At worst over the clients i, of cluster j, and the other clusters j': how much farther a_i is from the centre of
    j' than from its own, over (K/m_j + K/m_j') times that norm.

    Source: CLoVE, Theorem A.9, the condition of Kumar and Kannan (2010).
    """
    sizes, rows = np.bincount(clusters), np.arange(len(vectors))
    norm = float(np.linalg.norm(vectors - centres[clusters], 2))
    far = cdist(vectors, centres)
    asked = len(centres) * (1 / sizes[clusters][:, None] + 1 / sizes) * norm
    ratio = (far - far[rows, clusters][:, None]) / asked
    ratio[rows, clusters] = np.inf
    return norm, float(ratio.min())


def gradient_gap(gradients: FloatArray) -> float:
    """Return the least distance between two clusters' gradients (models, clusters, R) on one model.

    Source: CFL-GP, Assumption 3, for sequences of one model.
    """
    return float(min(pdist(of_model).min() for of_model in gradients))


def _two_phase(case: Case) -> Iterator[Row]:
    """Source: mixed regression, Theorems 1 to 3."""
    s: Any = case.settings
    train, sizes, k, loss = case.config.train, case.sizes, case.num_clusters, case.config.task.loss
    total, smallest = float(sizes.sum()), float(np.bincount(case.clusters, sizes).min())
    p_min, rho = float(np.bincount(case.clusters).min() / len(sizes)), smallest / total
    anchors = num_anchors(k if case.config.k == "auto" else case.config.k) if s.anchors == "auto" else s.anchors
    yield _row("p_min, share of the smallest cluster", p_min, "Sec. III, as drawn")
    yield _row("anchors m_H", anchors, "below Theorem 1, delta = 0.05", "at least", math.log(k / FAILS) / p_min)
    yield _row("chi squared(n)", chi_squared(sizes), "Sec. IV-B")
    yield _row("rho", rho, "Theorem 2")
    true = case.true_models
    if true is None or "squared_error" not in loss or train.optimizer != "sgd" or train.momentum:
        yield _row("Delta, kappa, nu, bound, m, n_H, T", None, _NOT_KNOWN if true is None else _OF_LINEAR)
        yield from case.recovery("run")
        return
    d, (alpha, beta), noise = true.shape[1], case.covariance, float(case.option("noise", 0.0))
    first = bank.unpack(case.start)[0][0]
    radius, delta = float(np.linalg.norm([*true, first], axis=1).max()), float(pdist(true).min())
    yield _row("alpha, least eigenvalue of the inputs' covariance", alpha, "Sec. III")
    yield _row("beta, largest one", beta, "Sec. III")
    yield _row("R, longest true or first model", radius, "Sec. III, Theorem 1")
    yield _row("Delta, least distance of true models", delta, "Sec. III")
    unit = beta**8 * (radius**4 + noise**4) * math.log(total) ** 3 / (alpha**12 * delta**4 * s.epsilon**4)
    spread = beta * radius / (alpha * s.epsilon * delta)
    asked = len(sizes) if s.subspace_clients == "all" else s.subspace_clients
    pairs = int(sizes[sizes >= s.min_anchor_examples].min(initial=sizes.max())) // 2
    moments = 16 * beta**2 / alpha**2 * math.log(2 * spread)
    errors = [(line["round"], error) for line in case.lines if (error := line["model_error"]) is not None]
    coarse = next((error for number, error in errors if number == s.moment_rounds), None)
    yield _row("epsilon", s.epsilon, "Theorem 1", "at most", alpha / 8)
    yield _row("m, clients asked in a round", asked, "Theorem 1, C = 1", "at least", unit * d / p_min**2)
    yield _row("n_H, pairs of an anchor", pairs, "Theorem 1, C = 1; half its samples", "at least", unit * k)
    yield _row("T, rounds of phase 1", s.moment_rounds, "Eq. (3)", "at least", moments)
    yield _row("distance from true models after phase 1", coarse, "Eq. (5)", "at most", s.epsilon * delta)
    proximal = s.local_solver == "fedprox"
    rate = train.learning_rate * (1 if loss == "half_squared_error" else 2)
    inputs = (case.task.client(client).x_train.flatten(1).numpy() for client in range(len(sizes)))
    gamma = rate * max(float(np.linalg.norm(x, 2) ** 2 / len(x)) for x in inputs)
    epochs = train.local_epochs * math.ceil(int(sizes.max()) / train.batch_size)
    steps = 1 if proximal else train.local_steps or max(1, math.ceil(epochs))
    kappa = stability(gamma, steps, proximal)
    wrong, deviation = clustering_error(sizes, d, k, alpha, math.inf if noise == 0 else delta / noise)
    nu = wrong + deviation
    # From 1 on it is no share of clients any more, and nu log(e/nu) falls.
    lost = nu * (1 - math.log(nu)) if nu < 1 else math.inf
    bound = math.sqrt(beta) * noise * kappa / (alpha * rho) * lost
    yield _row("gamma", gamma, "Sec. IV-B", "at most", 1)
    yield _row("kappa, stability of local steps", kappa, "Sec. IV-B")
    yield _row("samples of the smallest cluster", smallest, "Theorem 2, C_0 = 1", "at least", d)
    yield _row("nu: mean error of clients' choices", wrong, "Eq. (9), c = 1")
    yield _row("nu: uniform deviation", deviation, "Eq. (9), C = 1")
    yield _row("nu log(e/nu)", lost, "Theorem 2, c_1 = 1", "at most", rho * alpha / (kappa * beta))
    shrinks, end = 1 - steps * rate * alpha * rho / kappa, last(case.lines, "model_error")
    fell = _shrinks(errors, s.moment_rounds)
    yield _row("error over that of the round before", fell, "Eq. (8), c_2 = 1", "at most", shrinks)
    yield _row("distance from true models at the end", end, "Eq. (17), C = 1", "at most", bound)
    yield from case.recovery("run")


def _shrinks(errors: Sequence[tuple[int, float]], before: int) -> float | None:
    """Return by which factor a round after phase 1 lowers the error, while that is over twice its last value."""
    falling = [(number, error) for number, error in errors if number >= before and error > 2 * errors[-1][1]]
    if len(falling) < 2:
        return None
    (begin, high), (end, low) = falling[0], falling[-1]
    return float((low / high) ** (1 / (end - begin)))


def _clove(case: Case) -> Iterator[Row]:
    """Source: CLoVE, Theorems 4.1, 4.2 and A.9."""
    s: Any = case.settings
    sizes, clusters, k, module = case.sizes, case.clusters, case.num_clusters, case.task.build_model()
    models, n, true = bank.unpack(case.start)[0], float(sizes.min()), case.true_models
    parts, loss, states = map(case.task.client, range(len(sizes))), case.config.task.loss, case.states
    roots = np.sqrt(np.stack([loss_vector(module, states, part.x_train, part.y_train, loss) for part in parts]))
    centres = np.stack([roots[clusters == cluster].mean(axis=0) for cluster in range(k)])
    delta = lemma = widest = None
    means = "centres: means of clusters' clients"
    if true is None or loss != "squared_error" or true.shape[1] != models.shape[1]:
        reason = _NOT_KNOWN if true is None else _OF_LINEAR
        yield _row("Delta, sigma, norms, orthonormal models, bounds", None, reason)
    else:
        d, noise, delta = true.shape[1], float(case.option("noise", 0.0)), round(float(pdist(true).min()), 6)
        if case.option("covariance_spread", 1.0) == 1 and case.option("features", "") != "random":
            centres, means = np.sqrt(np.square(cdist(true, models)) + noise**2), "centres of the true models"
        lemma = delta / math.sqrt(4 + noise**2)
        widest = math.sqrt(len(models) * (9 + noise**2) / (2 * n) * len(sizes))
        norms = float(np.abs(np.linalg.norm(true, axis=1) - 1).max())
        apart = float(np.abs(models @ models.T - np.eye(len(models))).max())
        # rho / (rho + 1) with rho = Delta^2 / sigma^2.
        enough = float(np.bincount(clusters, sizes).min()) * (delta**2 / (delta**2 + noise**2)) ** 2
        yield _row("true models' norms, distance from 1", norms, "App. A.1", "at most", 1e-3)
        yield _row("sigma, noise", noise, "App. A.1: far below 1", "at most", 0.1)
        yield _row("Delta, least distance of true models", delta, "Sec. 4: close to 1", "at least", 0.5)
        yield _row("first models and probes, N", len(models), "Lemma A.1: N = d", "exactly", d)
        yield _row("products of first models, from I", apart, "Lemma A.1: orthonormal", "at most", 1e-3)
        yield _row("n_k m_k (rho / (rho + 1))^2", enough, "Assumption A.15, far above", "at least", math.log(k**2))
    norm, margin = proximity(roots, centres, clusters)
    yield _row("square roots of losses (1: yes)", float(s.square_root), "Remark A.12", "exactly", 1)
    yield _row("separation of centres", float(pdist(centres).min()), f"Lemma A.1; {means}", "at least", lemma)
    yield _row("norm of centred loss vectors", norm, "Lemma A.7 without polylog(M)", "at most", widest)
    yield _row("proximity: largest c'", margin, "Theorem A.9, whose c' is large", "at least", 1)
    size = k**4 * models.shape[1] / (len(sizes) * n)
    yield _row("d K^4 / (n M)", size, "Eq. (7): far below 1", "at most", 1)
    yield from case.recovery("Theorem 4.1", 1 if case.config.first_round == "evaluate" else 2)
    end, near = last(case.lines, "model_error"), None if delta is None else delta / 4
    yield _row("models' distance at the end", end, "Delta/4: proximal", "at most", near)


def _cfl_gp(case: Case) -> Iterator[Row]:
    """Source: CFL-GP, Assumptions 1 to 3, Theorem 1."""
    config, clusters, sizes, k = case.config, case.clusters, case.sizes, case.num_clusters
    s: Any = case.settings
    least, batch = int(np.bincount(clusters).min()), config.gradient_batch or config.train.batch_size
    module, means, noise = case.task.build_model(), [], 0.0
    names = [name for name, _ in module.named_parameters()]

    def flat(client: int, size: int | None) -> FloatArray:
        part, rng = case.task.client(client), generator(config.seed, 1, Purpose.GRADIENT_BATCH, client)
        values, _ = gradient(module, part.x_train, part.y_train, config.task.loss, size, rng)
        return np.concatenate([np.ravel(values[name]) for name in names]).astype(np.float64)

    for state in case.states:
        module.load_state_dict(state)
        for own in (np.flatnonzero(clusters == cluster).tolist() for cluster in range(k)):
            means.append(np.average([flat(client, None) for client in own], axis=0, weights=sizes[own]))
            batches = [flat(client, None if batch == "full" else batch) for client in own]
            noise = max(noise, float(np.mean([np.square(one - means[-1]).sum() for one in batches])))
    gap, n = gradient_gap(np.array(means).reshape(-1, k, len(means[0]))), sizes.mean() if batch == "full" else batch
    rounds = k**2 * s.period * len(sizes) ** 2 * noise / (FAILS**2 * gap**2 * least) + k * s.period + 1
    of = "first models" + ("; the run compares model changes" if config.averaging == "models" else "")
    yield _row("C rho, clients of the smallest cluster", least, "Assumption 1", "at least", 2)
    yield _row("Delta_g, least gap of clusters' gradients", gap, f"Assumption 3: above 0; {of}")
    yield _row("v / sqrt(b), noise of a client's gradient", math.sqrt(noise), f"Assumption 2; {of}")
    yield _row("v", math.sqrt(noise * n), f"Assumption 2; b = {n:g}")
    yield _row("rounds", config.num_rounds, "Theorem 1, lambda = 1, delta = 0.05", "at least", rounds)
    yield from case.recovery("Lemma 1: the share of wrong clients falls as 1/t")


_THEORIES: dict[str, Callable[[Case], Iterator[Row]]] = {"two_phase": _two_phase, "clove": _clove, "cfl_gp": _cfl_gp}
