"""Random intercepts: each client tests its group's model with its own, shrunken offset of the outputs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from florets.strategies.base.context import Plan, Round
from florets.strategies.base.method import PersonalMethod
from florets.strategies.base.models import Models
from florets.strategies.core import FloatArray
from florets.strategies.intercept.messages import INTERCEPT, Intercept, offset_basis
from florets.strategies.settings import Experiment, Settings
from florets.strategies.shared.estimates import last_layer
from florets.task.wire import codec, kinds
from florets.task.wire.evaluation import TestResult
from florets.task.wire.leaving import STATISTICS
from florets.task.wire.records import Entry
from florets.task.wire.replies import Update

_HALVINGS = 200
NO_INFORMATION = 1e30
"""Variance from which on an estimate says nothing."""


def between_variance(estimates: FloatArray, variances: FloatArray) -> float:
    """Return the variance tau^2 of true offsets around 0, of which estimates (m,) with variances (m,) are known.

    It solves sum b_i^2 / (v_i + tau^2) = m, or is 0 where the estimates are no further from 0 than their variances
    say. An estimate without information does not count.

    Source: Paule and Mandel 1982, as in DerSimonian and Kacker 2007 (Contemporary Clinical Trials 28).
    Deviation: the mean of the true offsets is 0 and not estimated, because the common model holds it; so the sum is
    compared with m, and not with m - 1.
    """
    known = variances < NO_INFORMATION
    squares, spread = np.square(estimates[known]), variances[known]
    if not known.any() or not squares.any():
        return 0.0
    # With a variance of tau^2 alone the sum would be m there, so the solution is not above.
    low, high = 0.0, float(squares.mean())

    def excess(tau2: float) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.where(squares > 0, squares / (spread + tau2), 0.0).sum()) - len(squares)

    if excess(0.0) <= 0:
        return 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return (low + high) / 2


def shrunk(estimates: FloatArray, variances: FloatArray) -> FloatArray:
    """Return the offsets (m,): tau^2 / (tau^2 + v_i) b_i, the best linear predictions where tau^2 is exact."""
    tau2 = between_variance(estimates, variances)
    if tau2 == 0:
        return np.zeros(len(estimates))
    found: FloatArray = tau2 / (tau2 + variances) * estimates
    return found


def residual_variance(variances: FloatArray, counts: FloatArray) -> float:
    """Return the variance of a residual within clients, pooled over them; infinite where no client has two records.

    `variances` (m,) are those of each client's residuals around their mean, with n - 1; `counts` (m,) its records n.
    """
    freedom = counts - 1
    return float(freedom @ variances / freedom.sum()) if freedom.sum() > 0 else np.inf


@dataclass(frozen=True)
class InterceptSettings(Settings):
    """The group's model, with an own output bias of each client that is shrunk towards the common one."""

    def problems(self, run: Experiment) -> list[str]:
        """Refuse a task whose outputs have no intercept."""
        if run.task.loss != "reconstruction":
            return []
        return [
            "personal=intercept: shifts logits or one value, and task.loss=reconstruction has neither; use "
            "personal=none."
        ]


@dataclass
class InterceptKept:
    """What clients said of their group's model at the last evaluation that they took part in.

    Attributes
    ----------
    estimates, variances
        Of each client's offsets (W,); of values the variance of one residual (1,).
    counts
        Its training records.
    groups
        Its group at that time.
    """

    estimates: dict[str, FloatArray] = field(default_factory=dict)
    variances: dict[str, FloatArray] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)


class InterceptClients(PersonalMethod[InterceptSettings, InterceptKept]):
    """The groups' models are trained as without the method; before a test clients estimate their offsets.

    An offset is added to the bias of the model's last layer: one number for values, the shift of the logit of class 1
    over class 0 for two classes, and C - 1 orthonormal contrasts of C classes (`wire.intercept.offset_basis`). A
    client estimates it on its training data with the model held fixed. The server estimates, for each group and
    number, the variance tau^2 of the clients' true offsets around 0, and shrinks each estimate by
    tau^2 / (tau^2 + v). Of values v is the variance of a residual, pooled over the group's clients, by the client's
    number of records.

    It is the random-intercept model of multi-centre statistics, fitted by empirical Bayes; the fixed effects are the
    group's model. An evaluation takes one exchange more, of the model down and a few numbers up.

    Source: DerSimonian and Kacker 2007 for the variance; Breslow and Clayton 1993 for the
    normal approximation of a client's likelihood, where there are classes.
    """

    leaving = (STATISTICS,)
    Settings = InterceptSettings
    Kept = InterceptKept
    name = "intercept"

    @property
    def is_active(self) -> bool:
        """Never: clients train their group's model alone."""
        return False

    def check(self, models: Models) -> None:
        """Refuse a model whose last layer is no linear one with a bias, and a task whose outputs are not known."""
        if self.num_outputs < 1:
            raise ValueError("personal=intercept: needs the number of outputs: give num_outputs.")
        self._bias(models)

    def _bias(self, models: Models) -> Entry:
        (layer,) = last_layer(models)
        entries = {entry.name: entry for entry in models.layout.entries}
        weight, bias = entries.get(f"{layer}.weight"), entries.get(f"{layer}.bias")
        if (
            bias is None
            or bias.shape != (self.num_outputs,)
            or (weight is None or weight.shape[:1] != bias.shape or len(weight.shape) != 2)
        ):
            raise ValueError(
                f"personal=intercept: the model's last layer {layer!r} is not a linear layer with a bias for each "
                f"of its {self.num_outputs} outputs; use one that is (task.model=linear: "
                f"task.model_options.bias=true), or personal=none."
            )
        return bias

    def train(self, context: Round, groups: Mapping[str, int]) -> Plan[Update]:
        """Never asked for, see `is_active`."""
        raise NotImplementedError("random intercepts leave training as it is")

    def test(self, context: Round, groups: Mapping[str, int]) -> Plan[TestResult]:
        """Let every tester with a group estimate its offset, and test its group's model with the shrunken one."""
        testers = [client for client in context.testers if client.key in groups]
        if not testers:
            return context.test({})
        models, kept, width = context.models, self.kept, offset_basis(self.num_outputs).shape[1]
        settings = {kinds.HEAD: last_layer(models)}
        requests = [
            context.request_custom(INTERCEPT, client, models.one(groups[client.key]), settings, category="query")
            for client in testers
        ]
        for key, found in context.ask(requests, lambda _, content: codec.read(Intercept, content, W=width)).ok:
            kept.estimates[key], kept.variances[key] = found.offsets, found.variances
            kept.counts[key], kept.groups[key] = found.num_examples, groups[key]
        own = self.own_models(models, groups)
        # A client that did not answer tests its group's model as it is.
        return context.test(
            {
                client.key: models.replaced(own[client.key][np.newaxis]).one(0)
                if client.key in own
                else models.one(groups[client.key])
                for client in testers
            }
        )

    def offsets(self, groups: Mapping[str, int]) -> dict[str, FloatArray]:
        """Return the shrunken offsets (W,) of the clients that estimated theirs for the group they are in."""
        kept, found = self.kept, dict[str, FloatArray]()
        for group in sorted(set(groups.values())):
            keys = sorted(key for key, of in groups.items() if of == group and kept.groups.get(key) == group)
            if not keys:
                continue
            estimates = np.array([kept.estimates[key] for key in keys])
            variances = np.array([kept.variances[key] for key in keys])
            if self.num_outputs == 1:
                variances = _of_means(variances[:, 0], np.array([kept.counts[key] for key in keys], dtype=np.float64))
            columns = [shrunk(*column) for column in zip(estimates.T, variances.T, strict=True)]
            found.update(zip(keys, np.stack(columns, axis=1), strict=True))
        return found

    def own_models(self, models: Models, groups: Mapping[str, int]) -> dict[str, FloatArray]:
        """Return the groups' models with the clients' offsets added to the bias."""
        place, basis, own = self._bias(models).place, offset_basis(self.num_outputs), {}
        for key, offsets in self.offsets(groups).items():
            row = own[key] = models.bank[groups[key]].copy()
            row[place] += basis @ offsets
        return own


def _of_means(variances: FloatArray, counts: FloatArray) -> FloatArray:
    """Return the variance of each client's mean residual (m, 1); a client whose model diverged has no information."""
    known = variances < NO_INFORMATION
    within = residual_variance(variances[known], counts[known]) if known.any() else np.inf
    found: FloatArray = np.where(known, within / counts, np.inf)[:, np.newaxis]
    return found
