"""`Method`: how clients train within their groups, with a part of each client's own."""

from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecordValues, RecordDict

from florets.strategies.base.exchange import Handler, Request, handler_path
from florets.strategies.base.models import GradientAveraging, Models, Updates
from florets.strategies.base.report import Client
from florets.strategies.base.round import Plan, Round, Tests
from florets.strategies.core import FloatArray
from florets.strategies.core.aggregate import average_models
from florets.strategies.settings import PERSONAL, Settings
from florets.task.wire import Layout, kinds
from florets.task.wire.flower import filled
from florets.task.wire.replies import Update, read_update

S = TypeVar("S", bound=Settings)
K = TypeVar("K")


@dataclass(eq=False)
class PerClient(UserDict[str, FloatArray]):
    """A vector for each client, by key, used as a dictionary; it is part of a strategy's state.

    Values are float64; they are kept in float32 where that is exact, as for clients' values.
    """

    data: dict[str, Any] = field(default_factory=dict)

    def __deepcopy__(self, _: object) -> Self:
        # Vectors are replaced, never changed: a copy of a strategy's state can share them.
        return type(self)(dict(self.data))

    def __getitem__(self, key: str) -> FloatArray:
        vector: FloatArray = self.data[key].astype(np.float64)
        return vector

    def __setitem__(self, key: str, vector: FloatArray) -> None:
        narrow = vector.astype(np.float32)
        self.data[key] = narrow if np.array_equal(narrow, vector) else vector


Sent = FloatArray | ConfigRecordValues
_SENT_ANYHOW = (kinds.ARRAYS, kinds.CONFIG, kinds.SERVER_ROUND, kinds.CLIENT_NUMBER, kinds.HANDLER)


class Method(Generic[S, K]):
    """What clients receive, compute and return within their groups, and what the server keeps for each.

    A strategy takes it by ``method = <subclass>``: FedAvg has one group, CLoVE, IFCA and the others find theirs.
    The defaults of the hooks train clients as without the method. Vectors are flat models (R,) of float64
    in the order of `layout`, and clients are named by their keys.

    Attributes
    ----------
    settings
        The strategy's.
    kept
        What the server keeps, of class `Kept`; a part of the strategy's state, so that checkpoints hold it.
    layout
        Names and places of the entries of a model: `mask(prefixes)` of layers, `trained`, `integers`, `untrained`.
    models
        The groups' models (K, R) at present; not to be changed.
    num_outputs
        Of the task; 0: not known.
    """

    Settings: ClassVar[type[Any]] = Settings
    Kept: ClassVar[type[Any]] = PerClient
    """Class of `kept`: a dataclass that can be made without arguments."""
    handler: ClassVar[Handler | None] = None
    """How clients train, a function decorated with `florets.handler`; None: local training as the run has it."""
    returns: ClassVar[tuple[str, ...]] = ()
    """Names of what the handler returns with the model, each of a model's names and shapes."""
    numbers: ClassVar[tuple[str, ...]] = ()
    """Names of the numbers that it returns with the training loss."""
    name: ClassVar[str] = "method"
    leaving: ClassVar[tuple[str, ...]] = ()
    """Names of what leaves the clients besides models, see `Strategy.leaving`."""
    trains: ClassVar[bool] = True
    """Whether clients train by this method; else they only train their group's model."""

    _models: Models
    _groups: Mapping[str, int] = {}
    _round = 0
    _examples: float | None = None
    """Of all of the round's participants."""

    def __init__(self, settings: S | None = None) -> None:
        self.settings: S = self.Settings() if settings is None else settings
        self.num_outputs = 0
        self._strategy: Any = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" not in vars(cls):
            cls.name = cls.__name__
        for attribute in ("returns", "numbers"):
            if isinstance(names := getattr(cls, attribute), str):
                raise ValueError(f'{cls.__name__}.{attribute}: is a string; write a tuple of names, ("{names}",)')
        taken = {kinds.ARRAYS, kinds.METRICS, kinds.CONFIG, kinds.WORK, kinds.TRAIN_LOSS, kinds.NUM_EXAMPLES}
        if wrong := sorted(taken.intersection((*cls.returns, *cls.numbers))):
            raise ValueError(f"{cls.__name__}: a reply already has {wrong[0]!r}; give what it returns another name")
        if cls.handler is not None:
            cls.handler = handler_path(cls.handler)

    def within(self, strategy: Any) -> None:
        """Attach the method to a strategy; ValueError where the run's averages do not fit it."""
        self._strategy, self.num_outputs = strategy, strategy.num_outputs
        if isinstance(strategy.averaging, GradientAveraging):
            raise ValueError(f"averaging=gradients: clients of {self.name} send models; use averaging=models")
        if self.averages and strategy.averaging.robust is not None:
            rule = strategy.averaging.robust.name
            raise ValueError(f"robust={rule}: {self.name} averages updates by itself, which no rule bounds")

    @property
    def layout(self) -> Layout:
        """See above."""
        return self._models.layout

    @property
    def models(self) -> FloatArray:
        """See above."""
        models = self._models.bank.view()
        # A hook that writes into a group's model would change it for everybody.
        models.flags.writeable = False
        return models

    @property
    def kept(self) -> K:
        """What is kept for each client, a part of the strategy's state."""
        state = self._strategy.state
        if state.kept is None:
            state.kept = self.Kept()
        return cast(K, state.kept)

    def start(self, client: str, model: FloatArray) -> FloatArray:
        """Return the model that a client starts its training from; `model` is its group's, and not to be changed."""
        return model

    def sends(self, client: str, group: int) -> Mapping[str, Sent]:
        """Return what a client is sent with the model, by name.

        Vectors travel as models, others (numbers, strings, lists of them) as settings of the message. Names
        that the project itself sends are refused (ValueError).
        """
        return {}

    def keep(self, updates: Sequence[tuple[str, Update]]) -> None:
        """Keep what of the round's valid updates is the clients' own, in `kept`; before the models are averaged.

        Nothing else changes `kept`: a client that changes group keeps its entry, and an entry for a group's number
        stays under that number if a strategy adds, drops or merges models.
        """

    def average(self, model: FloatArray, updates: Sequence[Update]) -> FloatArray:
        """Return a group's next model (R,) from its last one and its members' updates; by default their mean.

        The mean is weighted as the strategy's `weighting` says. An override may call it, with some of the updates, or
        with others (``dataclasses.replace(update, values=...)``); a run with `robust` refuses an override, because no
        rule bounds what single clients do to it. Only the trained entries of what it returns are used, and of them
        those that are not in `shared_layers`.
        """
        rows, members = Updates([("", update) for update in updates]), np.zeros(len(updates), dtype=np.int64)
        mean: FloatArray = average_models(
            model[np.newaxis],
            rows,
            members,
            np.array([update.num_examples for update in updates], dtype=np.float64),
            getattr(self.settings, "weighting", "examples"),
            np.zeros(model.size, dtype=np.bool_),
            self._examples,
        )[0]
        return mean

    def uses(self, client: str, model: FloatArray) -> FloatArray:
        """Return the model that a client tests and predicts with; `model` is its group's. By default `start`'s."""
        return self.start(client, model)

    def members(self, group: int) -> list[str]:
        """Return the sorted keys of the group's clients, by their assignment in this round or else the last one."""
        known = {**self._strategy.assignment, **self._groups}
        return sorted(key for key, own in known.items() if own == group)

    def check(self, models: Models) -> None:
        """Raise ValueError where the method does not fit the initial models; see `layout`."""
        self._models = models

    def train(self, r: Round, groups: Mapping[str, int]) -> Plan[Update]:
        """Ask every participant with a group to train."""
        self._models, self._groups, self._round = r.models, dict(groups), r.server_round
        plain, there = r.averaging.settings, [client for client in r.participants if client.key in groups]
        requests = [self._request(r, client, groups[client.key], plain) for client in there]

        def read(key: str, content: RecordDict) -> Update:
            return read_update(content, r.models.layout, groups[key], self.returns, self.numbers)

        return Plan(requests, read, keep=self.keep if self.trains else None, groups=groups)

    def _request(self, r: Round, client: Client, group: int, plain: Mapping[str, object]) -> Request:
        """Return the message by which a client trains; it may lack a model that the client has kept."""
        start = self._own(self.start, client.key, group)
        model: ArrayRecord | None = r.models.one(group) if start is None else self._record(start, "start")
        settings, others = dict[str, object](), dict[str, ArrayRecord]()
        for name, value in self.sends(client.key, group).items():
            if name in _SENT_ANYHOW or name in r.config:
                raise ValueError(f"{type(self).__name__}.sends: messages already have {name!r}; take another name")
            if hasattr(value, "dtype"):
                others[name] = self._record(value, "sends")
            else:
                settings[name] = value
        if self.handler is not None:
            return r.request_custom(self.handler, client, model, settings, others)
        if not self.trains and client.key in r.keepers:
            model, settings = None, {kinds.BANK: r.keepers[client.key], kinds.MODEL_INDEX: group}
        return r.request(kinds.TRAIN, client, model, {**plain, **settings}, others)

    def refuse_unused(self, r: Round) -> None:
        """Raise ValueError if the round's plan does not use what the method defines."""
        if self.trains and self._round != r.server_round:
            strategy = type(self._strategy).__name__
            raise ValueError(f"{strategy} does not train by Round.train: {type(self).__name__} has no effect on it")

    @property
    def averages(self) -> bool:
        """Whether the method has an average of its own."""
        return type(self).average is not Method.average

    def averaged(self, models: Models, updates: Sequence[tuple[str, Update]], bank: FloatArray) -> FloatArray:
        """Return the next bank (K, R); `bank` holds the plain averages."""
        if not self.averages:
            return bank
        self._models, ours = models, models.layout.trained & ~models.shared
        self._examples = float(sum(update.num_examples for _, update in updates))
        for group in sorted({update.model for _, update in updates}):
            members = [update for _, update in updates if update.model == group]
            bank[group, ours] = self.average(self.models[group], members)[ours]
        return bank

    def test(self, r: Round, groups: Mapping[str, int]) -> Tests:
        """Let every tester with a group test the model that it uses."""
        self._models, tested = r.models, {}
        for key in [client.key for client in r.testers if client.key in groups]:
            own = self._own(self.uses, key, groups[key])
            tested[key] = r.models.one(groups[key]) if own is None else self._record(own, "uses")
        return r.test(tested)

    def own_models(self, models: Models, groups: Mapping[str, int]) -> dict[str, FloatArray]:
        """Return the models that clients use where these are not their groups'."""
        self._models = models
        used = {key: self._own(self.uses, key, group) for key, group in groups.items()}
        return {key: own for key, own in used.items() if own is not None}

    def _own(self, hook: Callable[[str, FloatArray], FloatArray], client: str, group: int) -> FloatArray | None:
        """Return the model that `start` or `uses` gives a client; None: its group's."""
        if not self.trains:
            return None
        model = self.models[group]
        own = hook(client, model)
        return None if own is model else own

    def _record(self, vector: Any, hook: str) -> ArrayRecord:
        if np.shape(vector) != (self.layout.size,):
            raise ValueError(
                f"{type(self).__name__}.{hook}: gives an array of shape {np.shape(vector)}; a model is a vector of "
                f"shape ({self.layout.size},)"
            )
        return filled(ArrayRecord(), self.layout.arrays(vector))


class LocalTraining(Method[Settings, PerClient]):
    """Clients train and test their group's model, as the run has it."""

    trains = False

    def within(self, strategy: Any) -> None:
        """Attach the method to a strategy, whatever it averages."""
        self._strategy = strategy


def personal_method(name: str | None) -> Any:
    """Return the class of the method that a value of the run's `personal` means; None: no method of its own."""
    if name not in PERSONAL:
        return None
    module, cls = PERSONAL[name].split(":")
    return getattr(import_module(module), cls)
