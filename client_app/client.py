"""`Client`: a message to one client, with what its process keeps (`session`) and its node allows.

Handlers of an author's own are given `authors_client.Client`.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord, ConfigRecord, ConfigRecordValues, Context, Message, RecordDict
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module

from florets.client_app.caps import Limits
from florets.task.client_data import ClientData, Part, draw_samples, hold_out
from florets.task.consent import EVERYTHING, Consent, Refused
from florets.task.data.files import links_inside
from florets.task.data.tables.declaration import site_file
from florets.task.device import find_device
from florets.task.layers import at_home_hash
from florets.task.node_config import (
    CLIENT_ID,
    DATA_DIR,
    NUM_PARTITIONS,
    PARAMETERS,
    PARTITION_ID,
    TASK,
    flag,
    folders_config,
    forbids,
    shares_statistics,
)
from florets.task.partitions.own import OWN
from florets.task.randomness import Purpose, client_number, generator
from florets.task.registry import reads_files
from florets.task.settings import PLAIN_LOSSES
from florets.task.task import Task, TaskSpec
from florets.task.training.linear import LinearModels, LinearNames, linear_names
from florets.task.training.losses import PLAIN, Evaluated, Objective, Proximal, is_joint
from florets.task.training.newton import SecondOrder
from florets.task.training.settings import KEYS, Training
from florets.task.training.unsaved import Unsaved, keeps_something
from florets.task.training.vectorised import Trained
from florets.task.wire import bank, kinds
from florets.task.wire.leaving import LABELS
from florets.task.wire.narrow import whole
from florets.task.wire.records import view_array

Config = Mapping[str, ConfigRecordValues]
"""A message's settings."""

State = dict[str, Tensor]

_NODES_PROCESS = "flwr-clientapp"
_MOST_WHOLE = 4


@dataclass
class Session:
    """Tasks, modules and unpacked models of one process, which may serve many clients in turn.

    With `keeps_data` the tasks of earlier runs are kept as well: those of a later run with the same description read
    no file again. The files must not change meanwhile.
    """

    keeps_data: bool = False
    _earlier: dict[str, dict[tuple[object, ...], Task]] = field(default_factory=dict)
    _description: str = ""
    _tasks: dict[tuple[object, ...], Task] = field(default_factory=dict)
    _modules: dict[str, tuple[Module, Unsaved | None]] = field(default_factory=dict)
    _moved: dict[tuple[str, int, str], tuple[ClientData, ClientData]] = field(default_factory=dict)
    _unpacked: tuple[ArrayRecord, list[State]] | None = None
    _on_device: dict[tuple[int, str], State] = field(default_factory=dict)
    _arrays: list[tuple[ArrayRecord, dict[str, NDArray[np.float32]]]] = field(default_factory=list)
    _linear: LinearNames | None = None
    _stacked: tuple[ArrayRecord, LinearModels] | None = None
    _kept: tuple[str, ArrayRecord] | None = None
    _whole: list[tuple[ArrayRecord, ArrayRecord]] = field(default_factory=list)

    def task(self, config: Config, context: Context) -> Task:
        """Return the task that the message describes, with the data folder that this node may use.

        Raise ValueError if it names code that this node does not allow or asks for more than it does, or if a real
        node has no data folder: a path that a server names is never opened there.
        """
        text = config.get(kinds.TASK)
        if not isinstance(text, str):
            raise ValueError(f"the message's config has no {kinds.TASK!r}; send task.TaskSpec(...).to_json()")
        folder = context.node_config.get(DATA_DIR)
        if folder is None and not is_simulated(context):
            raise ValueError("this node has no data-dir in its node config; start its SuperNode with one")
        if has_owner(context):
            # Before it is read.
            Limits(context.node_config).hold(TASK, "length of the task's description", len(text))
        if text != self._description:
            # One task at a time: a process that serves another run needs none of the last one's data.
            last = {self._description: self._tasks} if self.keeps_data else {}
            self._forget()
            self._earlier |= last
            self._description, self._tasks = text, self._earlier.pop(text, {})
        rows_of = context.node_config.get(kinds.ROWS_OF)
        number = 0 if folder is None else number_of(config, context)
        key = () if folder is None else (folder, number, rows_of)
        if key not in self._tasks:
            spec = TaskSpec.from_json(text)
            if folder is not None:
                spec = spec.at_node(str(folder), None if rows_of is None else str(rows_of))
            if has_owner(context):
                _check_for_owner(spec, context)
            task = Task(spec, number)
            if task.is_own and folder is None:
                raise ValueError(
                    "task.partition=own needs a data-dir in each node's config; simulated nodes have none"
                )
            self._tasks[key] = task
        return self._tasks[key]

    def adopt(self, task: Task | None) -> None:
        """Serve simulated clients from a task that was handed over, where it is theirs; None: forget it."""
        if task is None and self.keeps_data:
            return
        self._forget()
        self._description = "" if task is None else task.spec.to_json()
        self._tasks = {} if task is None else {(): task}

    @contextmanager
    def keeping_data(self) -> Iterator[None]:
        """Keep the data of clients between the runs of a block; see the class."""
        self.keeps_data = True
        try:
            yield
        finally:
            self.keeps_data = False
            self._earlier = {}
            self.adopt(None)

    def _forget(self) -> None:
        self._tasks, self._modules, self._moved = {}, {}, {}
        self._unpacked = self._stacked = self._linear = self._kept = None
        self._on_device = {}

    def client(self, config: Config, context: Context, server_round: int) -> ClientData:
        """Return this node's data of a round on the device that it computes on; moved there once."""
        task = self.task(config, context)
        # A node's own data have one part: all of it.
        part = 0 if task.is_own else partition_id(context)
        data, device = task.client(part, server_round), device_of(config, context)
        if device.type == "cpu":
            return data
        place = (str(context.node_config.get(kinds.ROWS_OF, task.spec.data_dir)), part, str(device))
        if place not in self._moved or self._moved[place][0] is not data:
            tensors = {name: value.to(device) for name, value in vars(data).items() if isinstance(value, Tensor)}
            self._moved[place] = data, ClientData(**{**vars(data), **tensors})
        return self._moved[place][1]

    def module(self, config: Config, context: Context) -> Module:
        """Return the process's one module of this task; whoever uses it loads all of its state first."""
        # First of all: another task's message may have come before this one.
        task, device = self.task(config, context), str(device_of(config, context))
        if device not in self._modules:
            built = _built_for_owner(task, context) if has_owner(context) else task.module_to_load()
            if at_home_hash(built) != config.get(kinds.AT_HOME, ""):
                # This text may leave a node that noises all that it says: it is not of its data.
                raise Refused(
                    f"the parameters that task.model={task.spec.model} freezes (requires_grad=False) are not those "
                    "of the server: they are not sent, so the model function must make the same on both sides. Give "
                    "the node the same file that it reads them from, and the same versions of code and packages; "
                    "values that are drawn may differ between processors: save them to a file"
                )
            module = built.to(device)
            self._modules[device] = module, Unsaved(module) if keeps_something(module) else None
            self._linear = linear_names(module, task.spec.loss)
        return self._modules[device][0]

    def put_back(self) -> None:
        """Drop modules that keep something of an earlier client outside their state dict: they are built anew."""
        for device, (_, unsaved) in list(self._modules.items()):
            if unsaved is not None and unsaved.changed():
                del self._modules[device]

    def keep(self, config: Config, record: ArrayRecord, context: Context) -> bool:
        """Keep a message's models under the name that it gives them, in place of those kept before; say whether.

        Only where all messages of a node reach one process: elsewhere (a deployed node starts a process for each
        message, Ray's are drawn from a pool) the next message would not find them.
        """
        token = config.get(kinds.BANK)
        if not isinstance(token, str) or context.node_config.get(kinds.ONE_PROCESS) is not True:
            return False
        if self._kept is None or self._kept[0] != token:
            self._kept = (token, record)
        return True

    def kept(self, config: Config) -> ArrayRecord:
        """Return the models that were kept under the name in `config`, never others."""
        if self._kept is None or self._kept[0] != config.get(kinds.BANK):
            raise ValueError("this process no longer has the models of this round; was it restarted?")
        return self._kept[1]

    def whole(self, record: ArrayRecord) -> ArrayRecord:
        """Return a record with its narrow arrays as float32, see `wire.narrow`; the last few are kept."""
        for known, found in self._whole:
            if known is record:
                return found
        if (found := whole(record)) is not record:
            self._whole = [*self._whole[1 - _MOST_WHOLE :], (record, found)]
        return found

    def states(self, record: ArrayRecord) -> list[State]:
        """Return the models of a record as state dicts; unpacked once where clients are sent one record object."""
        if self._unpacked is None or self._unpacked[0] is not record:
            self._unpacked, self._on_device = (record, list(_states(record))), {}
        return self._unpacked[1]

    def on_device(self, state: State, device: torch.device) -> State:
        """Return a model's entries on a device; a model of the record that was unpacked last is moved there once."""
        if device.type == "cpu":
            return state
        place = (id(state), str(device))
        if (found := self._on_device.get(place)) is not None:
            return found
        moved = {name: value.to(device) for name, value in state.items()}
        # Others may go, and their place be another's.
        if self._unpacked is not None and any(state is own for own in self._unpacked[1]):
            self._on_device[place] = moved
        return moved

    def arrays(self, record: ArrayRecord) -> dict[str, NDArray[np.float32]]:
        """Return a record's arrays as float32; unpacked once, as in `states`, and the last two records are kept."""
        for known, arrays in self._arrays:
            if known is record:
                return arrays
        read = {name: view_array(array).astype(np.float32, copy=False) for name, array in record.items()}
        self._arrays = [*self._arrays[-1:], (record, read)]
        return read

    def linear(self, config: Config, context: Context) -> LinearNames | None:
        """Return the names of the model's entries if it is linear and computed on the CPU, else None."""
        if device_of(config, context).type != "cpu":
            return None
        self.module(config, context)
        return self._linear

    def linear_models(self, record: ArrayRecord, names: LinearNames) -> LinearModels:
        """Return a record's linear models; unpacked once, as in `states`."""
        if self._stacked is None or self._stacked[0] is not record:
            values = [{name: view_array(array) for name, array in model.items()} for model in bank.models(record)]
            self._stacked = (record, LinearModels.of(values, names))
        return self._stacked[1]


session = Session()
"""The process's caches; one process may serve many clients in turn."""


def is_simulated(context: Context) -> bool:
    """Return whether this is a node of a simulation; a SuperNode's is not, whatever its node config says."""
    return NUM_PARTITIONS in context.node_config and not has_process_of_its_own()


def has_process_of_its_own() -> bool:
    """Return whether this process is a deployed node's, started for one message."""
    # A simulation's process serves many clients and is not replaced, and that of the in-process engine is the user's.
    return _is_nodes(sys.argv[0])


@lru_cache(maxsize=2)
def _is_nodes(program: str) -> bool:
    return os.path.splitext(os.path.basename(program))[0] == _NODES_PROCESS


def with_folders_config(context: Context) -> Context:
    """Return a real node's context with what its data folder's file says; in one process the engine has read it.

    Raises
    ------
    ValueError
        If the file has a wrong key, or another value of a key than the SuperNode's node config.
    """
    node = context.node_config
    if DATA_DIR not in node:
        return context
    file = site_file(Path(str(node[DATA_DIR])))
    stated = {key: value for key, value in folders_config(file).items() if key not in (DATA_DIR, CLIENT_ID)}
    for key, value in stated.items():
        if node.get(key, value) != value:
            raise ValueError(
                f"{key} has one value in the SuperNode's --node-config and another in {file.name} of the data; keep "
                "one of them"
            )
    config = {**stated, **node}
    return Context(context.run_id, context.node_id, config, context.state, context.run_config, context.series_id)


def has_owner(context: Context) -> bool:
    """Return whether this node holds somebody's own data, whose say counts: its folder is in the node config.

    Of a simulation without, server and nodes are one user's.
    """
    return DATA_DIR in context.node_config or not is_simulated(context)


def _check_for_owner(spec: TaskSpec, context: Context) -> None:
    """Refuse a task that a node with an owner is not there for, before anything of it is imported or read."""
    consent = consent_of(context)
    for part in ("data", "partition", "model", "loss"):
        consent.require(f"task.{part}", getattr(spec, part))
    consent.require("measure", spec.measure)
    Limits(context.node_config).check_task(spec)
    if is_simulated(context):
        # A dry run, on its user's own machine.
        return
    if spec.drift:
        raise ValueError("task.drift is for simulations: real nodes bring their own data; leave it out")
    if reads_files(spec.data) is False:
        raise ValueError(
            f"task.data={spec.data} is synthetic, for simulations: a real node's data are the files in its "
            f"data-dir; use task.data=own"
        )
    if spec.data != OWN and ":" not in spec.data and (folder := Path(spec.data_dir)).is_dir():
        links_inside(folder, folder)


def _built_for_owner(task: Task, context: Context) -> Module:
    """Build the model of a node with an owner; a built-in one that is too large is refused before it takes memory."""

    def held(module: Module) -> Module:
        size = sum(value.numel() for value in module.parameters())
        Limits(context.node_config).hold(PARAMETERS, f"parameters of task.model={task.spec.model}", size)
        return module

    if ":" not in task.spec.model:
        with torch.device("meta"):
            held(task.build_model())
    return held(task.module_to_load())


def consent_of(context: Context) -> Consent:
    """Return what code a run may name here."""
    return Consent.of(context.node_config) if has_owner(context) else EVERYTHING


def partition_id(context: Context) -> int:
    """Return the number of this node's part of the data."""
    number = context.node_config.get(PARTITION_ID)
    if not isinstance(number, int):
        raise ValueError("this node has no partition-id in its node config")
    return number


def num_partitions(context: Context) -> int:
    """Return the number of simulated nodes, 0 on a node that is not simulated."""
    return int(context.node_config[NUM_PARTITIONS]) if is_simulated(context) else 0


def client_key(context: Context) -> str:
    """Return the name under which this node is the same client again after a restart.

    The partition id is padded with zeros, so that the order of the keys is that of the ids.
    """
    if CLIENT_ID in context.node_config:
        return str(context.node_config[CLIENT_ID])
    if PARTITION_ID in context.node_config:
        digits = len(str(max(num_partitions(context) - 1, 0)))
        return str(context.node_config[PARTITION_ID]).zfill(digits)
    return kinds.NO_KEY


def number_of(config: Config, context: Context) -> int:
    """Return the number that stands for this client in its draws, see `florets.task.randomness.client_number`."""
    # The server knows the client's registered name, the node may not; other strategies than ours send no number.
    key, name = client_key(context), kinds.CLIENT_NUMBER
    if key == kinds.NO_KEY and name not in config:
        name = kinds.UNNAMED_NUMBER
    return int(_number(config, name)) if name in config else client_number(key)


def _number(config: Config, key: str, default: float | None = None) -> float:
    value = config.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"the message's config has {key}={value!r}, not a number")
    return value


def device_of(config: Config, context: Context) -> torch.device:
    """Return where this node computes: its own setting, else the message's, else the CPU."""
    return find_device(str(context.node_config.get(kinds.DEVICE, config.get(kinds.DEVICE, "cpu"))))


def _states(record: ArrayRecord) -> Iterator[State]:
    for arrays in bank.models(record):
        yield {name: torch.from_numpy(view_array(array).copy()) for name, array in arrays.items()}


@dataclass(frozen=True)
class Prepared:
    """What was computed for one message, together with others; None: nothing of that kind.

    `losses` (K,) are those of the message's models as they may be sent, `trained` is the model after local training,
    `tested` its test, and `seconds` this message's share of the wall time.
    """

    losses: NDArray[np.float64] | None = None
    trained: Trained | None = None
    tested: Evaluated | None = None
    seconds: float = 0.0


NOTHING = Prepared()


class Client:
    """One client that has been sent one message: its data and model, and what the message holds.

    Nothing is remembered until the next message: what a client is to know again, the server sends. A setting that is
    missing or of the wrong type raises ValueError, as does a message that asks for too much
    (`florets.client_app.caps`).
    """

    def __init__(self, message: Message, context: Context) -> None:
        self.content: RecordDict = message.content
        self.config = config_of(message.content)
        self.context = context
        if has_owner(context):
            Limits(context.node_config).check_message(message.content, self.config)
        # What was computed for this message together with others, before its handler begins.
        self.prepared: Prepared = NOTHING
        # Of local training: halvings of a rate with which it diverged, and what Newton's steps began with.
        self.halvings = 0
        self.second_order: SecondOrder | None = None

    @property
    def key(self) -> str:
        """Name under which this client is the same one again after a restart."""
        return client_key(self.context)

    @property
    def is_simulated(self) -> bool:
        """Whether the node is one of a simulation, where server and clients are one user's."""
        return is_simulated(self.context)

    @property
    def shares_confusion(self) -> bool:
        """Whether this node tells the server the counts of its test: as it says; else a simulated one does."""
        config = self.context.node_config
        return flag(config, kinds.SHARE_CONFUSION, self.is_simulated) and not forbids(config, LABELS)

    @property
    def shares_statistics(self) -> bool:
        """Whether this node sends sums of its tests and of its targets: unless its config says false."""
        return shares_statistics(self.context.node_config)

    @property
    def hides_records(self) -> bool:
        """Whether the server asks for noise that hides each single record (`privacy.kind=example`)."""
        return self.config.get(kinds.PRIVACY) == kinds.RECORDS

    @property
    def num_partitions(self) -> int:
        """Number of simulated nodes, 0 on a node that is not simulated."""
        return num_partitions(self.context)

    @cached_property
    def task(self) -> Task:
        """The task that the message describes."""
        return session.task(self.config, self.context)

    @property
    def data(self) -> ClientData:
        """Data of this client that it trains and tests on, on the device that it computes on."""
        return self._parts[0]

    @cached_property
    def loss_data(self) -> Part:
        """Inputs and targets of the losses: the training data, a part that is held out, or a batch of either."""
        part = self._parts[1]
        batch = self.number(kinds.LOSS_BATCH, 0)
        if batch < 0 or not float(batch).is_integer():
            raise ValueError(f"the message's config has {kinds.LOSS_BATCH}={batch!r}, not a count of samples")
        if not 0 < batch < len(part[0]):
            return part
        return draw_samples(part, int(batch), self.random(Purpose.LOSS_BATCH))

    @cached_property
    def _parts(self) -> tuple[ClientData, Part]:
        data = session.client(self.config, self.context, self.server_round)
        if self.config.get(kinds.LOSS_DATA) != kinds.HELD_OUT:
            return data, (data.x_train, data.y_train)
        # Round 0: the same samples in every round of a run.
        rng = generator(self._seed, 0, Purpose.HELD_OUT, self._number)
        return hold_out(data, rng, self.task.is_own and self.task.stratifies)

    @property
    def module(self) -> Module:
        """The process's one module of this task; whoever uses it loads all of its state first."""
        return session.module(self.config, self.context)

    @cached_property
    def training(self) -> Training:
        """Local training as the message asks for it, at the learning rate of its round."""
        for name in ("learning_rate", "local_epochs", "batch_size"):
            if KEYS[name] not in self.config:
                raise ValueError(f"the message's config has no {KEYS[name]!r}")
        found = Training.received(self.config).in_round(self.server_round)
        if self.loss not in PLAIN_LOSSES and is_joint(self.loss, self.module, self.data.x_train, self.data.y_train):
            # One number for all samples says nothing of a part of them.
            return replace(found, batch_size=self.num_examples)
        return found

    @property
    def objective(self) -> Objective:
        """What the message asks to minimise: the loss, with a proximal term, without the frozen layers."""
        if kinds.PROXIMAL_MU not in self.config and kinds.FROZEN not in self.config:
            return PLAIN
        mu = self.number(kinds.PROXIMAL_MU, 0.0)
        return Objective(terms=(Proximal(mu),) if mu else (), frozen=tuple(self.names(kinds.FROZEN)))

    @property
    def loss(self) -> str:
        """Name of the task's loss, see `florets.task.training.losses.per_sample_losses`."""
        return self.task.spec.loss

    @property
    def num_examples(self) -> int:
        """Number of training samples."""
        return self.data.x_train.shape[0]

    @property
    def linear(self) -> LinearNames | None:
        """Names of the model's entries where it is a linear one that is computed in NumPy, else None."""
        return session.linear(self.config, self.context)

    def arrays(self, record: str = kinds.ARRAYS) -> ArrayRecord:
        """Return one of the message's array records; raise ValueError where it has none of this name."""
        arrays = self.content.get(record)
        if not isinstance(arrays, ArrayRecord):
            raise ValueError(f"the message has no {record!r}")
        return session.whole(arrays) if kinds.WIRE in self.config else arrays

    def states(self, record: str = kinds.ARRAYS) -> list[State]:
        """Return the models of an array record as state dicts: one, or K in their order.

        They are shared with later messages: load them into a module, and do not change them.
        """
        return session.states(self.arrays(record))

    @property
    def device(self) -> torch.device:
        """Where this client computes."""
        return device_of(self.config, self.context)

    def on_device(self, state: State) -> State:
        """Return a model on this client's device; do not change it. Those of `states` are moved once."""
        return session.on_device(state, self.device)

    def linear_models(self, linear: LinearNames) -> LinearModels:
        """Return the message's models where they are linear."""
        return session.linear_models(self.arrays(), linear)

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number among the message's settings; raise ValueError where there is none and no default."""
        return _number(self.config, key, default)

    def names(self, key: str) -> list[str]:
        """Return a list of names among the message's settings, empty where there is none."""
        value = self.config.get(key, [])
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise ValueError(f"the message's config has {key}={value!r}, not a list of names")
        return [str(name) for name in value]

    @property
    def server_round(self) -> int:
        """Number of the round, from 1; 0 where the server names none."""
        return int(self.number(kinds.SERVER_ROUND, 0))

    def random(self, purpose: Purpose | str) -> np.random.Generator:
        """Return the generator of one of this client's draws in this round: the same at every call."""
        return generator(self._seed, self.server_round, purpose, self._number)

    @property
    def _seed(self) -> int:
        return int(self.number(kinds.SEED, 0))

    @property
    def _number(self) -> int:
        return number_of(self.config, self.context)


def config_of(content: RecordDict) -> Config:
    """Return a message's settings; raise ValueError where it has none."""
    config = content.get(kinds.CONFIG)
    if not isinstance(config, ConfigRecord):
        raise ValueError(f"the message has no {kinds.CONFIG!r}")
    # A plain dictionary, which is read in a tenth of the time.
    return dict(config.items())


_at_hand: dict[int, Client] = {}


@contextmanager
def clients_at_hand(clients: Mapping[int, Client]) -> Iterator[None]:
    """Keep a block's clients, by their messages' ``id``, while it is answered: what they have looked up stays."""
    _at_hand.update(clients)
    try:
        yield
    finally:
        _at_hand.clear()


def client_of(message: Message, context: Context) -> Client:
    """Return the client that has been sent a message."""
    return _at_hand.get(id(message)) or Client(message, context)
