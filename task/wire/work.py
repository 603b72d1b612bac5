"""Cost of a client's work, told beside every reply: a measurement, whose bytes are not counted as traffic."""

import math

from flwr.app import ConfigRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import MalformedMessage
from florets.task.wire.records import config_record, entries
from florets.task.work import Work

_SECONDS, _GRADIENTS, _LOSSES = "seconds", "gradients", "losses"
MOST_PASSES = 10**15
MOST_SECONDS = 1e8


def pack_work(work: Work) -> ConfigRecord:
    """Return the record; a reply carries it under `kinds.WORK`."""
    # Flower's own strategies demand one record of metrics in a reply: this one is of another kind.
    return config_record({_SECONDS: work.seconds, _GRADIENTS: work.gradients, _LOSSES: work.losses})


def read_work(content: RecordDict) -> Work:
    """Return what a reply tells of its cost; nothing where it does not tell.

    Raises
    ------
    MalformedMessage
        If it is told wrongly.
    """
    record = content.get(kinds.WORK)
    if record is None:
        return Work()
    if not isinstance(record, ConfigRecord) or record.keys() != {_SECONDS, _GRADIENTS, _LOSSES}:
        raise MalformedMessage(f"record {kinds.WORK!r} does not hold {_SECONDS}, {_GRADIENTS} and {_LOSSES}")
    told = entries(record)
    seconds, gradients, losses = told[_SECONDS], told[_GRADIENTS], told[_LOSSES]
    passes = (gradients, losses)
    if not all(type(number) is int and 0 <= number <= MOST_PASSES for number in passes):
        raise MalformedMessage(
            f"record {kinds.WORK!r} holds {passes!r} passes, not integers from 0 to {MOST_PASSES:g}"
        )
    if type(seconds) is not float or not math.isfinite(seconds) or not 0 <= seconds <= MOST_SECONDS:
        raise MalformedMessage(f"record {kinds.WORK!r} holds {seconds!r} seconds")
    return Work(seconds, int(str(gradients)), int(str(losses)))
