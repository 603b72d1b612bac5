"""Read the reply to `query.hello`: what a client tells of itself, of which nothing is trusted."""

from dataclasses import dataclass

from flwr.app import ConfigRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.layout import MalformedMessage
from florets.task.wire.magnitude import MAGNITUDE_KEYS, Magnitude, read_magnitude
from florets.task.wire.replies import MAX_EXAMPLES, example_count, reply_metrics


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
    if not all(isinstance(text, str) and 0 < len(text) <= 200 for text in texts.values()):
        raise MalformedMessage("the client's key, device and fingerprint must be texts of 1 to 200 characters")
    if not all(_is_plain(str(text)) for text in texts.values()):
        raise MalformedMessage(
            f"the client's key, device and fingerprint are {texts!r}; they must begin with a letter or digit and "
            "hold printable characters only"
        )
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


def _is_plain(text: str) -> bool:
    """Say whether a client's text can go into logs, tables and pages as it is.

    A control character could forge lines of the log, and a cell of a table that begins with =, +, - or @ is a formula
    to a spreadsheet.
    """
    return text == kinds.NO_KEY or (text.isprintable() and text[0].isalnum())
