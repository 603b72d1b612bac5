"""Cost of a client's work, told beside every reply: a measurement, whose bytes are not counted as traffic."""

from flwr.app import ConfigRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import MalformedMessage
from florets.task.wire.records import config_record, entries
from florets.task.work import Work

_SECONDS, _GRADIENTS, _LOSSES = "seconds", "gradients", "losses"
_NAMES = {_SECONDS, _GRADIENTS, _LOSSES}
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
    record = entries(content).get(kinds.WORK)
    if record is None:
        return Work()
    told = entries(record) if isinstance(record, ConfigRecord) else {}
    if told.keys() != _NAMES:
        raise MalformedMessage(f"record {kinds.WORK!r} does not hold {_SECONDS}, {_GRADIENTS} and {_LOSSES}")
    seconds, gradients, losses = told[_SECONDS], told[_GRADIENTS], told[_LOSSES]
    if not (type(gradients) is type(losses) is int and 0 <= gradients <= MOST_PASSES and 0 <= losses <= MOST_PASSES):
        raise MalformedMessage(
            f"record {kinds.WORK!r} holds {(gradients, losses)!r} passes, not integers from 0 to {MOST_PASSES:g}"
        )
    if type(seconds) is not float or not 0 <= seconds <= MOST_SECONDS:
        raise MalformedMessage(f"record {kinds.WORK!r} holds {seconds!r} seconds")
    return Work(seconds, gradients, losses)
