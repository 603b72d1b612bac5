"""Messages that are filled at once are Flower's own."""

import pytest
from flwr.app import ConfigRecord, Message, Metadata, RecordDict

from florets.engines.local_grid import as_flowers_process
from florets.task.wire import kinds
from florets.task.wire.records import new_message, reply_message

CONTENT = RecordDict({"config": ConfigRecord({"rate": 0.5})})


@pytest.fixture(autouse=True)
def _process() -> None:
    as_flowers_process()


def timeless(message: Message) -> dict[str, object]:
    """All that a message's metadata holds, but the times."""
    return {name: value for name, value in vars(message.metadata).items() if name not in ("_created_at", "_ttl")}


def hold_equal(ours: Message, theirs: Message) -> None:
    assert vars(ours).keys() == vars(theirs).keys()
    assert vars(ours.metadata).keys() == vars(theirs.metadata).keys()
    assert timeless(ours) == timeless(theirs)
    assert (ours.has_content(), ours.has_error(), ours.content) == (True, False, theirs.content)
    assert ours.metadata.created_at == pytest.approx(theirs.metadata.created_at, abs=10)
    assert ours.metadata.ttl == pytest.approx(theirs.metadata.ttl, abs=10)


def sent_and_received(message: Message) -> Message:
    found = Message.inflate(message.deflate(), {message.content.object_id: message.content})
    # The id stays behind: whoever delivers the message gives it.
    vars(found.metadata)["_message_id"] = message.metadata.message_id
    return found


@pytest.mark.parametrize("kind", [kinds.TRAIN, kinds.LOSSES, kinds.HELLO, "train.custom"])
def test_a_new_message_is_the_one_that_flower_makes(kind: str) -> None:
    ours = new_message(CONTENT, 7, kind, 3600.0, "3")
    hold_equal(ours, Message(CONTENT, 7, kind, ttl=3600.0, group_id="3"))
    assert ours.metadata.ttl == 3600.0
    hold_equal(sent_and_received(ours), ours)
    assert isinstance(ours.metadata, Metadata)


def test_a_reply_is_the_one_that_flower_makes() -> None:
    message = new_message(CONTENT, 7, kinds.TRAIN, 3600.0, "3")
    vars(message.metadata)["_message_id"] = "12"
    ours = reply_message(RecordDict(), message)
    hold_equal(ours, Message(RecordDict(), reply_to=message))
    assert (ours.metadata.reply_to_message_id, ours.metadata.src_node_id) == ("12", 7)
    # It is waited for as long as the message is.
    ends = message.metadata.created_at + message.metadata.ttl
    assert ours.metadata.created_at + ours.metadata.ttl == pytest.approx(ends, abs=1e-3)
    hold_equal(sent_and_received(ours), ours)


@pytest.mark.parametrize("kind", ["", "teach", "train.", "train.a.b", "train.1a"])
def test_types_that_flower_refuses_are_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="message type"):
        new_message(CONTENT, 7, kind, 3600.0, "3")
