"""`session`: tasks, modules and unpacked models that the process keeps between the messages that it answers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context
from torch import Tensor
from torch.nn import Module

from florets.client_app.caps import Limits
from florets.client_app.node import Config, consent_of, device_of, has_owner, is_simulated, number_of, partition_id
from florets.task.client_data import ClientData
from florets.task.consent import Refused
from florets.task.data.files import links_inside
from florets.task.layers import at_home_hash, copied
from florets.task.node_config import DATA_DIR, PARAMETERS, TASK
from florets.task.partitions.own import OWN
from florets.task.registry import reads_files
from florets.task.task import Task, TaskSpec
from florets.task.training.linear import LinearNames, linear_names
from florets.task.training.modules import keeps_something
from florets.task.wire import bank, kinds
from florets.task.wire.records import view_array

State = dict[str, Tensor]


@dataclass
class Session:
    """Tasks, modules and unpacked models of one process, which may serve many clients in turn."""

    keeps_data: bool = False
    _earlier: dict[str, dict[tuple[object, ...], Task]] = field(default_factory=dict)
    _description: str = ""
    _tasks: dict[tuple[object, ...], Task] = field(default_factory=dict)
    _modules: dict[str, Module] = field(default_factory=dict)
    _in_use: dict[str, Module] = field(default_factory=dict)
    _moved: dict[tuple[str, int, str], tuple[ClientData, ClientData]] = field(default_factory=dict)
    _unpacked: tuple[ArrayRecord, list[State]] | None = None
    _on_device: dict[int, dict[str, State]] = field(default_factory=dict)
    _linear: LinearNames | None = None
    _kept: tuple[str, ArrayRecord] | None = None

    def task(self, config: Config, context: Context) -> Task:
        """Return the task that the message describes, with the data folder that this node may use."""
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
        self._tasks, self._modules, self._in_use, self._moved = {}, {}, {}, {}
        self._on_device = {}
        self._unpacked = self._linear = self._kept = None

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
            self._modules[device] = built.to(device)
            self._linear = linear_names(built, task.spec.loss)
        if device not in self._in_use:
            module = self._modules[device]
            self._in_use[device] = copied(module, task.module_to_load) if keeps_something(module) else module
        return self._in_use[device]

    def put_back(self) -> None:
        """Drop modules that may keep something of an earlier client outside their state dict."""
        self._in_use = {device: used for device, used in self._in_use.items() if used is self._modules[device]}

    def keep(self, config: Config, record: ArrayRecord, context: Context) -> bool:
        """Keep a message's models under the name that it gives them; say whether the next message will come here."""
        token = config.get(kinds.BANK)
        if not isinstance(token, str) or context.node_config.get(kinds.ONE_PROCESS) is not True:
            return False
        if self._kept is None or self._kept[0] != token:
            self._kept = (token, record)
        return True

    def kept(self, config: Config) -> ArrayRecord:
        """Return the models that were kept under the name in `config`."""
        if self._kept is None or self._kept[0] != config.get(kinds.BANK):
            raise ValueError("this process no longer has the models of this round; was it restarted?")
        return self._kept[1]

    def states(self, record: ArrayRecord) -> list[State]:
        """Return the models of a record as state dicts; unpacked once where clients are sent one record object."""
        if self._unpacked is None or self._unpacked[0] is not record:
            states: list[State] = []
            self._on_device = {}
            for model in bank.models(record):
                states.append({name: torch.from_numpy(view_array(one).copy()) for name, one in model.items()})
                self._on_device[id(states[-1])] = {}
            self._unpacked = record, states
        return self._unpacked[1]

    def on_device(self, state: State, device: torch.device) -> State:
        """Return a model's entries on a device; a model of the record that was unpacked last is moved there once."""
        if device.type == "cpu":
            return state
        # Of others nothing is kept: they may go, and their id be another's.
        moved = self._on_device.get(id(state), {})
        if str(device) not in moved:
            moved[str(device)] = {name: value.to(device) for name, value in state.items()}
        return moved[str(device)]

    def linear(self, config: Config, context: Context) -> LinearNames | None:
        """Return the names of the model's entries if it is linear and computed on the CPU, else None."""
        if device_of(config, context).type != "cpu":
            return None
        self.module(config, context)
        return self._linear


session = Session()
"""The process's caches; one process may serve many clients in turn."""


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
