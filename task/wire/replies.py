"""Replies that any algorithm may ask for, an author's own, `query.hello`'s; cost of a reply; rule of stability."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from flwr.app import ConfigRecord, RecordDict

from florets.task.tested import Work
from florets.task.wire import codec, kinds
from florets.task.wire.codec import MAX_EXAMPLES, Flag, Form, Item, LossList, Model, Number, Tensor, Text, form_of
from florets.task.wire.records import Layout, MalformedMessage, NotFinite, PackedVector, Vector

Examples = Annotated[int, Number(integer=True, least=1, most=MAX_EXAMPLES)]


@dataclass(frozen=True)
class Losses:
    """Reply to `evaluate.losses`: mean loss of each model (K,), and whether the client's process kept the models."""

    losses: Annotated[npt.NDArray[np.float64], LossList("K")]
    num_examples: Examples
    kept: Annotated[bool, Flag()]


_ROUNDING = 1e-6
"""Of the largest entry of a Hessian, by which rounding may have moved its entries and eigenvalues."""
_terms = partial(Tensor, record=kinds.SECOND_ORDER, dtype="float64", most=kinds.DIVERGED)


def check_convex(hessian: npt.NDArray[np.float64]) -> None:
    """Refuse a matrix that is no Hessian of a convex loss."""
    scale = float(np.abs(hessian).max(initial=0.0))
    if np.abs(hessian - hessian.T).max(initial=0.0) > _ROUNDING * scale:
        raise MalformedMessage("the Hessian is not symmetric")
    if np.linalg.eigvalsh(hessian)[0] < -_ROUNDING * scale:
        raise MalformedMessage("the Hessian is not one of a convex loss: it has a negative eigenvalue")


@dataclass(frozen=True)
class Update:
    """Reply to a training message: new parameters or a gradient (R,) of model `model`.

    `arrays` (R,) and `numbers` are what an author's handler returns beside it, by name; `halvings` how often the
    client halved its learning rate, because training diverged; `gradient` (R,) and `hessian` (R, R) those of a linear
    model's loss before training, as sums over records (`florets.task.training.newton`); None: not sent.
    """

    model: int
    values: Annotated[Vector | PackedVector, Model()]
    num_examples: Examples
    train_loss: Annotated[float, Number(kinds.TRAIN_LOSS)]
    losses: npt.NDArray[np.float64] | None = None
    gradient: Annotated[npt.NDArray[np.float64] | None, _terms("R", name=kinds.GRADIENT)] = field(
        default=None, kw_only=True
    )
    hessian: Annotated[npt.NDArray[np.float64] | None, _terms("R", "R", name=kinds.HESSIAN)] = field(
        default=None, kw_only=True
    )
    halvings: Annotated[int, Number(kinds.HALVINGS, integer=True, least=0, most=kinds.MOST_HALVINGS)] = field(
        default=0, kw_only=True
    )
    arrays: Mapping[str, Vector] = field(default_factory=dict, kw_only=True)
    numbers: Mapping[str, float] = field(default_factory=dict, kw_only=True)

    def check(self) -> None:
        """Refuse second-order terms that are no gradient and Hessian of a convex loss of these parameters."""
        if self.gradient is None and self.hessian is None:
            return
        if self.gradient is None or self.hessian is None or self.gradient.shape != self.vector.shape:
            raise MalformedMessage("gradient and Hessian are not those of the model that was sent")
        check_convex(self.hessian)

    @property
    def vector(self) -> Vector:
        """The values as float64; where they are kept as they were sent, new at every call."""
        return self.values.unpacked() if isinstance(self.values, PackedVector) else self.values

    @property
    def largest(self) -> float:
        """Largest absolute value of `vector`, 0 without any."""
        if isinstance(self.values, PackedVector):
            return self.values.largest
        return float(np.abs(self.values).max(initial=0.0))

    @property
    def others(self) -> npt.NDArray[np.floating] | None:
        """All that the server will use in place of `vector` or beside it; None where there is nothing else."""
        return np.concatenate(list(self.arrays.values())) if self.arrays else None


@dataclass(frozen=True)
class SelectedUpdate(Update):
    """Reply to `train.select`: an update of the model that the client chose among K, and its losses of all (K,)."""

    model: Annotated[int, Number(kinds.CHOSEN_MODEL, integer=True, least=0, most=MAX_EXAMPLES)]
    losses: Annotated[npt.NDArray[np.float64], LossList("K")] = field(kw_only=True)

    def check(self) -> None:
        """Hold the choice to the models."""
        super().check()
        if self.model >= len(self.losses):
            raise MalformedMessage(f"chosen model {self.model} is not one of 0 to {len(self.losses) - 1}")


@dataclass(frozen=True)
class TracedUpdate(Update):
    """An update with S losses of local training, from its first step to its last; infinite where it diverged."""

    step_losses: Annotated[npt.NDArray[np.float64], LossList("S")] = field(kw_only=True)


@dataclass(frozen=True)
class Answer:
    """Reply to a query of an author's own: its arrays and numbers by name, and the client's number of examples."""

    arrays: Mapping[str, npt.NDArray[np.float32]]
    numbers: Mapping[str, float]
    num_examples: int


def read_update(
    content: RecordDict, layout: Layout, model: int, returns: Sequence[str] = (), numbers: Sequence[str] = ()
) -> Update:
    """Read the update of `model`, and the records of this layout and the numbers that must accompany it."""
    if not returns and not numbers:
        return codec.read(Update, content, layout=layout, model=model)
    found = _update_form(tuple(returns), tuple(numbers)).read(content, {"layout": layout})
    arrays = {name: found.pop(("array", name)).unpacked() for name in returns}
    figures = {name: found.pop(("number", name)) for name in numbers}
    update = Update(model, **found, arrays=arrays, numbers=figures)
    update.check()
    return update


def read_answer(content: RecordDict, returns: Mapping[str, Sequence[int]], numbers: Sequence[str]) -> Answer:
    """Read the reply to a query: arrays of these shapes and numbers, by name."""
    shapes = tuple((name, tuple(shape)) for name, shape in returns.items())
    found = _answer_form(shapes, tuple(numbers)).read(content, {})
    arrays = {name: found["array", name] for name in returns}
    return Answer(arrays, {name: found["number", name] for name in numbers}, found["num_examples"])


@dataclass(frozen=True)
class _OwnNumber(Number):
    """A number of an author's handler: one that is not finite is the handler's fault, and no sign of divergence."""

    def checked(self, name: str, value: Any, sizes: codec.Sizes) -> Any:
        try:
            return super().checked(name, value, sizes)
        except NotFinite as error:
            raise MalformedMessage(f"what the handler returns as {error}") from None


@lru_cache(maxsize=64)
def _update_form(returns: tuple[str, ...], numbers: tuple[str, ...]) -> Form:
    own = form_of(Update)
    items: dict[Any, Item] = {**own.items, **{("array", name): Model(record=name) for name in returns}}
    return Form({**items, **{("number", name): _OwnNumber(name) for name in numbers}}, own.optional)


@lru_cache(maxsize=64)
def _answer_form(returns: tuple[tuple[str, tuple[int, ...]], ...], numbers: tuple[str, ...]) -> Form:
    items: dict[Any, Item] = {("array", name): Tensor(*shape, name=name) for name, shape in returns}
    items |= {("number", name): _OwnNumber(name) for name in numbers}
    return Form({**items, "num_examples": form_of(Losses).items["num_examples"]})


def check_examples(claimed: int | None, introduced: int | None) -> None:
    """Hold a reply's count of examples, its weight in averages, to the one that the client introduced itself with."""
    if claimed is not None and introduced is not None and claimed > introduced:
        raise MalformedMessage(
            f"{kinds.NUM_EXAMPLES} is {claimed}, more than the {introduced} of its introduction; a client's data "
            "must stay the same during a run"
        )


_COST: dict[str, tuple[Any, float]] = {"seconds": (float, 1e8), "gradients": (int, 1e15), "losses": (int, 1e15)}
"""Type and largest value of each figure."""


def take_work(content: RecordDict) -> Work:
    """Take out of a reply what it says of its cost and return it; nothing where it says nothing."""
    record = content.pop(kinds.WORK, None)
    if record is None:
        return Work()
    sent: Mapping[str, Any] = record if isinstance(record, ConfigRecord) else {}
    for name, (kind, most) in _COST.items():
        value: Any = sent.get(name)
        if type(value) is not kind or not 0 <= value <= most:
            raise MalformedMessage(f"{name} of the record {kinds.WORK!r} is {value!r:.60}, not from 0 to {most:g}")
    if len(sent) > len(_COST):
        raise MalformedMessage(f"record {kinds.WORK!r} holds more than {', '.join(_COST)}")
    return Work(**sent)


_LONGEST_NAME = 200
_FORMULA = "=+-@"
"""A table's cell that begins with one of these is a formula to a spreadsheet, which runs when the table is opened."""


def key_problem(key: str) -> str | None:
    """Return why a text cannot be a client's key; None where it can: printable, so that no log is forged."""
    if not key.strip() or len(key) > _LONGEST_NAME:
        return f"must have 1 to {_LONGEST_NAME} characters, and not blanks alone"
    if not key.isprintable():
        return "must hold printable characters only"
    if key[0] in _FORMULA:
        return f"must not begin with one of {' '.join(_FORMULA)}, which make it a formula to a spreadsheet"
    return None


def _problem(text: str) -> str | None:
    return None if text == kinds.NO_KEY else key_problem(text)


@dataclass(frozen=True)
class Introduction:
    """Reply to `query.hello`; `num_partitions` is 0 unless the node is simulated."""

    key: Annotated[str, Text(kinds.CLIENT_KEY, _problem)]
    num_examples: Examples
    device: Annotated[str, Text(kinds.DEVICE, _problem)]
    fingerprint: Annotated[str, Text(kinds.FINGERPRINT, _problem)]
    flower: Annotated[str, Text(kinds.FLOWER, _problem)]
    true_cluster: Annotated[int, Number(least=-1, most=MAX_EXAMPLES, integer=True)]
    num_partitions: Annotated[int, Number(least=-1, most=MAX_EXAMPLES, integer=True)]
    never_send: Annotated[str | None, Text(kinds.NEVER_SEND, _problem)] = None
    """Names of what the node's owner never lets it send, with commas between them."""

    @property
    def cluster(self) -> int | None:
        """The true cluster; None where it is not known."""
        return None if self.true_cluster == kinds.NO_CLUSTER else self.true_cluster
