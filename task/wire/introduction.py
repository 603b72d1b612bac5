"""Read the reply to `query.hello`: what a client tells of itself, of which nothing is trusted."""

from dataclasses import dataclass

from flwr.app import ConfigRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import MalformedMessage
from florets.task.wire.magnitude import MAGNITUDE_KEYS, Magnitude, read_magnitude
from florets.task.wire.replies import MAX_EXAMPLES, example_count, reply_metrics

_LONGEST_NAME, _MOST_QUOTED = 200, 60
_FORMULA = "=+-@"
"""A table's cell that begins with one of these is a formula to a spreadsheet, which runs when the table is opened."""


@dataclass(frozen=True)
class Introduction:
    """Reply to `query.hello`. `num_partitions` is 0 unless the node is simulated."""

    key: str
    num_examples: int
    cluster: int | None
    device: str
    fingerprint: str
    num_partitions: int
    magnitude: Magnitude | None = None


def read_introduction(content: RecordDict) -> Introduction:
    """Read what a client tells of itself.

    Raises
    ------
    MalformedMessage
        If keys, types or a value is wrong.
    """
    config = content.get(kinds.CONFIG)
    expected = {kinds.CLIENT_KEY: str, kinds.DEVICE: str, kinds.FINGERPRINT: str}
    if not isinstance(config, ConfigRecord) or config.keys() - set(MAGNITUDE_KEYS) != expected.keys():
        raise MalformedMessage(f"hello must carry the settings {sorted(expected)}")
    texts = {key: config[key] for key in expected}
    for name, text in texts.items():
        if not isinstance(text, str):
            raise MalformedMessage(f"{name} is a {type(text).__name__} and must be a text")
        if text != kinds.NO_KEY and (problem := key_problem(text)):
            raise MalformedMessage(f"{name}={text[:_MOST_QUOTED]!r} {problem}")
    keys = {kinds.NUM_EXAMPLES, kinds.CLUSTER, kinds.NUM_PARTITIONS}
    metrics = reply_metrics(content, keys, arrays=False, config=True)
    numbers = {key: metrics[key] for key in (kinds.CLUSTER, kinds.NUM_PARTITIONS)}
    if not all(isinstance(number, int) and -1 <= number <= MAX_EXAMPLES for number in numbers.values()):
        raise MalformedMessage(f"{numbers} must be integers")
    cluster = int(str(numbers[kinds.CLUSTER]))
    return Introduction(
        key=str(texts[kinds.CLIENT_KEY]),
        num_examples=example_count(metrics),
        cluster=None if cluster == kinds.NO_CLUSTER else cluster,
        device=str(texts[kinds.DEVICE]),
        fingerprint=str(texts[kinds.FINGERPRINT]),
        num_partitions=int(str(numbers[kinds.NUM_PARTITIONS])),
        magnitude=read_magnitude(config),
    )


def key_problem(key: str) -> str | None:
    """Return why a text cannot be a client's key, which goes into logs, tables and pages as it is; None where it can.

    A control character could forge lines of the log. All else that is printable is a name: (1), _x, an emoji.
    """
    if not key.strip() or len(key) > _LONGEST_NAME:
        return f"must have 1 to {_LONGEST_NAME} characters, and not blanks alone"
    if not key.isprintable():
        return "must hold printable characters only"
    if key[0] in _FORMULA:
        return f"must not begin with one of {' '.join(_FORMULA)}, which make it a formula to a spreadsheet"
    return None
