"""The K models of a round, rules for the initial ones, and how clients' replies are averaged into the next."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord

from florets.strategies.core import BoolArray, FloatArray, IntArray
from florets.strategies.core.aggregate import apply_step, average_gradients, average_models, pooled_step
from florets.strategies.core.robust import Gram, Robust, RobustRule
from florets.strategies.core.rows import Columns, Rows, ScaledRows
from florets.strategies.settings import RunKeys, Settings, Weighting, choice_of
from florets.task.training.settings import Training
from florets.task.wire import Layout, bank, kinds
from florets.task.wire.records import PackedVector, add_scaled, columns
from florets.task.wire.replies import Update


class Models:
    """K models as one record, one by one, and as a flat bank.

    Layers with the prefixes `shared_layers` are equal in all models (model 0's count where `record` differs); no
    gradient moves the `untrained` entries.
    """

    def __init__(self, record: ArrayRecord, shared_layers: Sequence[str] = (), untrained: Sequence[str] = ()) -> None:
        self.shared_layers = tuple(shared_layers)
        self.untrained = tuple(untrained)
        self.layout = Layout.of(bank.model(record, 0), self.untrained)
        self.shared: BoolArray = self.layout.mask(shared_layers)
        self.count = bank.num_models(record)
        if self.count > 1 and self.shared.all():
            raise ValueError(
                f"shared_layers={list(shared_layers)} leaves nothing to differ between {self.count} models; "
                "leave a layer out, or use one model (fedavg)"
            )
        self.record = record
        self._one: dict[int, ArrayRecord] = {}
        if self.shared.any() and self.count > 1:
            values = bank.unpack(record)[0]
            values[:, self.shared] = values[0, self.shared]
            self.record = bank.pack(values, self.layout, self.shared)

    def __deepcopy__(self, _: object) -> "Models":
        # Models are replaced, never changed: a copy of a strategy's state can share them.
        return self

    @cached_property
    def token(self) -> str:
        """Unique name under which a client's process may keep these models."""
        return secrets.token_hex(8)

    @cached_property
    def bank(self) -> FloatArray:
        """All models as rows (K, R) of float64."""
        values = np.empty((self.count, self.layout.size))
        # Of large models all rows once more, to be stacked, would be most of what the server holds.
        for index, row in enumerate(values):
            self.layout.checked(self.one(index)).unpacked(row)
        return values

    @cached_property
    def largest(self) -> float:
        """Largest absolute value of all models."""
        return max(float(self.bank.max(initial=0.0)), -float(self.bank.min(initial=0.0)))

    def one(self, index: int) -> ArrayRecord:
        """Return model `index` under its plain names."""
        if not 0 <= index < self.count:
            raise ValueError(f"a client was given model {index}, but there are {self.count} models, from 0; set k")
        if index not in self._one:
            self._one[index] = bank.model(self.record, index)
        return self._one[index]

    def replaced(self, values: FloatArray) -> "Models":
        """Return other models (K', R) of the same layout."""
        return Models(bank.pack(values, self.layout, self.shared), self.shared_layers, self.untrained)


def untrained_of(config: ConfigRecord) -> tuple[str, ...]:
    """Return the names of the models' entries that no gradient moves, as the settings of every message list them."""
    names = config.get(kinds.UNTRAINED, [])
    return tuple(map(str, names)) if isinstance(names, list) else ()


def orthonormal_rows(bank: FloatArray) -> FloatArray:
    """Return models (K, R) that are orthogonal to each other: row k less its part along the rows before it.

    Source: CLoVE, analysis (orthonormal initial models).
    Deviation: lengths are kept, because networks do not train from weights scaled to length 1.
    """
    num_models, num_parameters = bank.shape
    if num_models == 1:
        return np.array(bank, dtype=np.float64)
    norms = np.linalg.norm(bank, axis=1)
    basis, triangle = np.linalg.qr(bank.T)
    along = np.diagonal(triangle)
    if len(along) < num_models or (np.abs(along) <= norms * num_parameters * np.finfo(np.float64).eps).any():
        raise ValueError("a model is zero or a combination of those before it; use strategy.init=different")
    rows: FloatArray = basis.T * (np.sign(along) * norms)[:, np.newaxis]
    return rows


@dataclass(frozen=True)
class Updates(ScaledRows):
    """Clients' updates as the rows of a matrix (P, R); `grams` those of their changes by model, where known."""

    updates: Sequence[tuple[str, Update]]
    grams: Mapping[int, Gram] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.updates)

    def __getitem__(self, row: int, /) -> FloatArray:
        return self.updates[row][1].vector

    def add_scaled(self, rows: IntArray, factors: FloatArray, total: FloatArray) -> None:
        """See `ScaledRows`."""
        values = [self.updates[row][1].values for row in rows]
        packed = [value for value in values if isinstance(value, PackedVector)]
        if len(packed) == len(values):
            add_scaled(packed, factors.tolist(), total)
            return
        for row, factor in zip(rows, factors, strict=True):
            total += np.multiply(self[row], factor)

    def changes(self, rows: IntArray, start: FloatArray) -> Iterator[FloatArray]:
        """See `ScaledRows`."""
        narrow, change = start.astype(np.float32), np.empty(start.size, dtype=np.float32)
        for row in rows:
            values = self.updates[row][1].values
            yield values.minus(narrow, change) if isinstance(values, PackedVector) else values - start  # type: ignore[misc]

    def columns(self, rows: IntArray, count: int) -> Iterator[FloatArray]:
        """See `ScaledRows`."""
        values = [self.updates[row][1].values for row in rows]
        if all(isinstance(value, PackedVector) for value in values):
            return columns(cast(Sequence[PackedVector], values), count)
        vectors = np.stack([self[int(row)] for row in rows], axis=1)
        return (vectors[begin : begin + count] for begin in range(0, len(vectors), count))

    @property
    def keys(self) -> list[str]:
        """Key of each client."""
        return [key for key, _ in self.updates]

    @property
    def models(self) -> IntArray:
        """Model that each client trained, (P,)."""
        return np.array([update.model for _, update in self.updates], dtype=np.int64)

    @property
    def examples(self) -> FloatArray:
        """Example counts, (P,)."""
        return np.array([update.num_examples for _, update in self.updates], dtype=np.float64)


class Part(NamedTuple):
    """Entries of the models that are counters or have no gradient, (K, R'), and what clients sent for them."""

    bank: FloatArray
    integers: BoolArray
    untrained: BoolArray
    rows: Rows
    assignment: IntArray
    weights: FloatArray
    robust: Robust | None


@dataclass(frozen=True, kw_only=True)
class Averaging(ABC):
    """One of the two averaging options. Shared layers are averaged over all participants, whatever their model.

    `note` is called with the part of each client's update that counted in a `robust` rule. With `privacy` means are
    of clipped changes, with noise.
    """

    robust: RobustRule | None = None
    privacy: Any = field(default=None, repr=False, compare=False)
    note: Callable[[str, float], None] | None = field(default=None, repr=False, compare=False)

    @property
    @abstractmethod
    def settings(self) -> dict[str, str | int]:
        """Message settings: what the client returns."""

    def in_round(self, config: ConfigRecord, server_round: int) -> Self:
        """Return the averaging with its values from the round's message settings."""
        return self

    @abstractmethod
    def _next(self, part: Part) -> FloatArray:
        """Return the next values (K, R') of some entries."""

    def _start(self, bank: FloatArray, untrained: BoolArray) -> FloatArray:
        """Return what the clients' vectors are changes of, (K, R)."""
        return bank

    def next_bank(
        self, models: Models, vectors: Rows, assignment: IntArray, weights: FloatArray, keys: Sequence[str] = ()
    ) -> FloatArray:
        """Return the next bank (K, R) of what participants returned (P, R), by their models and weights (P,)."""
        if self.privacy is not None and not self.privacy.is_local:
            bank, kept = self._noised(models, vectors, assignment)
        else:
            bank, kept = self._averaged(models, vectors, assignment, weights)
        if self.note is not None:
            keys = keys or (vectors.keys if isinstance(vectors, Updates) else ())
            for key, fraction in zip(keys, kept.tolist(), strict=False):
                self.note(key, fraction)
        return bank

    def _averaged(
        self, models: Models, vectors: Rows, assignment: IntArray, weights: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the next bank, and with a rule the part of each vector that counted (P,)."""
        layout, rule, bank, kept = models.layout, self.robust, models.bank, np.zeros(0)
        shared = models.shared & (models.count > 1)
        # A rule looks at parameters, running statistics and counters apart, as their sizes differ.
        statistics = layout.untrained & ~layout.integers
        kinds = (np.ones_like(shared),) if rule is None else (layout.integers, statistics, layout.trained)
        for kind in kinds:
            # Without a rule it is faster to average the shared entries twice than to leave them out.
            own = kind if rule is None else kind & ~shared
            for mask, groups, count in ((own, assignment, models.count), (kind & shared, assignment * 0, 1)):
                if not mask.any():
                    continue
                columns = slice(None) if mask.all() else mask
                of, untrained = models.bank[:count, columns], layout.untrained[columns]
                rows = vectors if mask.all() else Columns(vectors, mask)
                is_whole = groups is assignment and (mask == layout.trained).all()
                grams = vectors.grams if isinstance(vectors, Updates) and is_whole else {}
                robust = None if rule is None else Robust(rule, rows, groups, self._start(of, untrained), grams)
                found = self._next(Part(of, layout.integers[columns], untrained, rows, groups, weights, robust))
                kept = robust.kept if robust is not None and groups is assignment else kept
                if found.shape == bank.shape:
                    bank = found
                else:
                    bank = bank.copy() if bank is models.bank else bank
                    bank[:, columns] = found
        return bank, kept

    @abstractmethod
    def _moved(self, bank: FloatArray, changes: FloatArray, members: BoolArray) -> FloatArray:
        """Return models (K, R) after a step by the means of what their clients returned, as changes of `_start`."""

    def _noised(self, models: Models, vectors: Rows, assignment: IntArray) -> tuple[FloatArray, FloatArray]:
        """Return the same by noised sums of clipped changes; models have trained entries alone."""
        everybody = getattr(self, "weighting", "") == "all_participants"
        start = self._start(models.bank, models.layout.untrained)
        changes, members, kept = self.privacy.changes(vectors, assignment, start, models.shared, everybody)
        bank = self._moved(models.bank, changes, members)
        bank[:, models.shared] = self._moved(models.bank[:1], changes[:1], np.ones(1, np.bool_))[:, models.shared]
        return bank, kept


def penalty_of(layout: Layout, training: Training) -> FloatArray:
    """Return the ridge of each parameter (R,) of a linear model."""
    is_bias = np.concatenate([np.full(entry.size, len(entry.shape) == 1) for entry in layout.entries])
    return training.penalty(is_bias)


@dataclass(frozen=True)
class ModelAveraging(Averaging):
    """Option I: clients train locally and return parameters, averaged per model.

    Source: CLoVE Alg. 1, l. 19 and 25; IFCA option II.
    """

    weighting: Weighting = "examples"
    fraction: float = 1.0
    """Part of the clients that a round draws. A whole Newton step would end at the fit of these alone: the model goes
    to the mean of what all rounds found, later to that of the last ones."""
    newton: Training | None = field(default=None, repr=False)
    step: float = field(default=1.0, repr=False)

    def in_round(self, config: ConfigRecord, server_round: int) -> Self:
        """Return the averaging that adds up gradients and Hessians, where clients train by Newton's steps."""
        training = Training.received(config)
        if training.solver != "newton":
            return self
        return replace(self, newton=training, step=max(self.fraction, 1 / max(server_round, 1)))

    @property
    def _adds_up(self) -> bool:
        # A rule bounds what single clients do to a mean of models, noise hides them in it.
        return self.newton is not None and self.robust is None and self.privacy is None

    def next_bank(
        self, models: Models, vectors: Rows, assignment: IntArray, weights: FloatArray, keys: Sequence[str] = ()
    ) -> FloatArray:
        """Return the next bank (K, R): of linear models pooled Newton steps, where all clients sent their terms."""
        bank = super().next_bank(models, vectors, assignment, weights, keys)
        if self.newton is None or not self._adds_up or not isinstance(vectors, Updates) or models.shared.any():
            return bank
        layout = models.layout
        counts = np.ones(len(assignment)) if self.weighting == "uniform" else weights
        for model in np.unique(assignment):
            rows = np.flatnonzero(assignment == model)
            own = [vectors.updates[int(row)][1] for row in rows]
            gradients = [one.gradient for one in own if one.gradient is not None]
            hessians = [one.hessian for one in own if one.hessian is not None]
            if not 1 < len(own) == len(hessians):
                continue
            step = pooled_step(
                *(models.bank[model], gradients, hessians, vectors.examples[rows], counts[rows]),
                # Of a part of the records so much of it.
                self.fraction * penalty_of(layout, self.newton),
                # Cross-entropies have an output for each class.
                is_quadratic=layout.entries[0].shape[0] == 1,
            )
            share = counts[rows].sum() / counts.sum() if self.weighting == "all_participants" else 1.0
            bank[model] = models.bank[model] + self.step * share * step
        return bank

    def _moved(self, bank: FloatArray, changes: FloatArray, members: BoolArray) -> FloatArray:
        return np.where(members[:, np.newaxis], bank + changes, bank)

    @property
    def settings(self) -> dict[str, str | int]:
        """Ask for the trained model, and for what pooled Newton steps take."""
        terms = {kinds.SECOND_ORDER: 1} if self._adds_up else {}
        return {kinds.REPLY: kinds.REPLY_MODEL, **terms}

    def _next(self, part: Part) -> FloatArray:
        bank, integers, _, rows, assignment, weights, robust = part
        return average_models(bank, rows, assignment, weights, self.weighting, integers, robust=robust)


@dataclass(frozen=True)
class GradientAveraging(Averaging):
    """Option II: clients return one gradient, the server takes one step of `learning_rate` (gamma).

    Without a rate it is the clients'. `batch` examples make each gradient (0: all, None: the clients' batch size).
    `optimizer="adam"` is one step of a freshly built Adam, as in CLoVE's published code.

    Source: CLoVE Alg. 1, l. 21 and 26; IFCA option I (weighting "all_participants").
    """

    learning_rate: float | None = None
    weighting: Weighting = "examples"
    optimizer: Literal["sgd", "adam"] = "sgd"
    batch: int | None = 0

    @property
    def settings(self) -> dict[str, str | int]:
        """Ask for the gradient."""
        return {kinds.REPLY: kinds.REPLY_GRADIENT, kinds.GRADIENT_BATCH: self.batch or 0}

    def in_round(self, config: ConfigRecord, server_round: int) -> Self:
        """Return the averaging with its learning rate in a round: the clients', where it has none of its own."""
        training = Training.received(config)
        rate = training.learning_rate if self.learning_rate is None else self.learning_rate
        batch = training.batch_size if self.batch is None else self.batch
        return replace(self, learning_rate=rate * training.rate_factor(server_round), batch=batch)

    def _start(self, bank: FloatArray, untrained: BoolArray) -> FloatArray:
        return np.where(untrained, bank, 0.0)

    def _moved(self, bank: FloatArray, changes: FloatArray, members: BoolArray) -> FloatArray:
        assert self.learning_rate is not None
        return apply_step(bank, changes, members, self.learning_rate, self.optimizer)

    def _next(self, part: Part) -> FloatArray:
        bank, integers, untrained, rows, assignment, weights, robust = part
        gradient, members = average_gradients(rows, assignment, weights, self.weighting, bank.shape, robust)
        stepped = self._moved(bank, gradient, members)
        if untrained.any():
            # Running statistics have no gradient: clients send their values, which are averaged as in option I.
            values = bank[:, untrained], Columns(rows, untrained)
            stepped[:, untrained] = average_models(
                *values, assignment, weights, self.weighting, integers[untrained], robust=robust
            )
        return stepped


def averaging_of(settings: Settings, run: RunKeys) -> Averaging:
    """Return the averaging that the run's keys choose, else the algorithm's, with the weighting of its settings."""
    name = choice_of(settings, "averaging", run.averaging)
    weighting: Weighting = getattr(settings, "weighting", "examples")
    rule = None if run.robust == "none" else RobustRule(run.robust, run.hostile)
    if name in (None, "models"):
        return ModelAveraging(weighting, settings.fraction_train, robust=rule)
    batch = 0 if (run.gradient_batch or settings.gradient_batch) == "full" else run.gradient_batch
    return GradientAveraging(
        weighting=weighting,
        optimizer=run.server_optimizer,
        batch=batch,  # type: ignore[arg-type]  # "full" has become 0
        robust=rule,
    )
