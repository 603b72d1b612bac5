"""The K models that a round starts from, and rules for the first ones."""

import secrets
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord

from florets.strategies.core import BoolArray, FloatArray
from florets.task.wire import Layout, bank, kinds


class Models:
    """K models as one record, one by one, and as a flat bank.

    Parameters
    ----------
    record
        K models with numbered entries, or one plain model.
    shared_layers
        Name prefixes of the layers that are equal in all models; model 0's are taken where `record` differs.
    untrained
        Names of the entries that no gradient moves; see `untrained_of`.

    Raises
    ------
    ValueError
        If a prefix or name fits no layer, or all layers of several models are shared.
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
        """Name under which a client's process may keep these models: no others ever have it."""
        return secrets.token_hex(8)

    @cached_property
    def bank(self) -> FloatArray:
        """All models as rows (K, R) of float64."""
        values = np.empty((self.count, self.layout.size))
        # Of large models all rows once more, to be stacked, would be most of what the server holds.
        for index, row in enumerate(values):
            row[:] = self.layout.flatten(self.one(index))
        return values

    def one(self, index: int) -> ArrayRecord:
        """Return model `index` under its plain names.

        Raises
        ------
        ValueError
            If there is no such model.
        """
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
    """Return models (K, R) that are orthogonal to each other, each with the length that it had.

    Row k keeps a positive inner product with the original row k: it is that row less its part along the rows before
    it, brought back to its length. One model is returned as it is. ValueError if K > R, or a row depends on those
    before it.

    Source: CLoVE, analysis (orthonormal first models).
    Deviation: lengths are kept, because networks do not train from weights scaled to length 1.
    """
    num_models, num_parameters = bank.shape
    if num_models > num_parameters:
        raise ValueError(
            f"{num_models} models of {num_parameters} parameters cannot be orthogonal: "
            f"use at most {num_parameters} models, or strategy.init=different."
        )
    if num_models == 1:
        return np.array(bank, dtype=np.float64)
    norms = np.linalg.norm(bank, axis=1)
    basis, triangle = np.linalg.qr(bank.T)
    along = np.diagonal(triangle)
    dependent = np.abs(along) <= norms * num_parameters * np.finfo(np.float64).eps
    if dependent.any():
        raise ValueError(
            f"model {int(np.argmax(dependent))} is zero or a combination of the models before it "
            f"and cannot be made orthogonal to them: start from different models, or use strategy.init=different."
        )
    rows: FloatArray = basis.T * (np.sign(along) * norms)[:, np.newaxis]
    return rows


def refuse_equal(models: Models, algorithm: str) -> None:
    """Raise ValueError where there are several models and all are equal."""
    if models.count > 1 and (models.bank == models.bank[0]).all():
        raise ValueError(f"all {models.count} initial models are equal: {algorithm} can never tell them apart")
