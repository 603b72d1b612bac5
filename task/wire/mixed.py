"""Read the reply to `train.mixed`: a client's update, and the weights of the mixture that it began as."""

from dataclasses import dataclass, field

import numpy as np
from flwr.app import ArrayRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import Entry, Layout, MalformedMessage, Vector
from florets.task.wire.replies import Update, read_update


@dataclass(frozen=True)
class MixedUpdate(Update):
    """An update, and the global model's weight in each entry of the upper layers; None where none was learned."""

    mix: Vector | None = field(kw_only=True)


def mix_layout(layers: Layout) -> Layout:
    """Return the layout of the weights of these layers: one float32 for each entry."""
    return Layout(tuple(Entry(e.name, e.shape, "float32", e.start) for e in layers.entries))


def read_mixed_update(content: RecordDict, layout: Layout, model: int, mix: Layout | None) -> MixedUpdate:
    """Read an update, and weights of the layout `mix` where the client was sent layers of its own.

    Raises
    ------
    MalformedMessage
        If keys, types, shapes or a value is wrong, or a weight is not between 0 and 1.
    """
    if mix is None:
        own = read_update(content, layout, model)
        return MixedUpdate(own.model, own.values, own.num_examples, own.train_loss, mix=None)
    record = content.get(kinds.MIX)
    if not isinstance(record, ArrayRecord):
        raise MalformedMessage(f"record {kinds.MIX!r} is a {type(record).__name__}, not an ArrayRecord")
    own = read_update(RecordDict({name: content[name] for name in content if name != kinds.MIX}), layout, model)
    weights = mix.flatten(record)
    if np.any((weights < 0) | (weights > 1)):
        raise MalformedMessage(f"{kinds.MIX} holds a weight of {weights.min()} or {weights.max()}, not from 0 to 1")
    return MixedUpdate(own.model, own.values, own.num_examples, own.train_loss, mix=weights)
