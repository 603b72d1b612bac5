"""The K models that a round starts from."""

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
