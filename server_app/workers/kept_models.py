"""Models that clients were asked to keep, put back into the messages that only name them."""

from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from florets.task.wire import bank, kinds
from florets.task.wire.records import entries, restored


class KeptModels:
    """The last models that clients were asked to keep.

    In shared memory sending them again costs next to nothing, and any worker can answer, be it started meanwhile.
    """

    def __init__(self) -> None:
        self._token = ""
        self._record = ArrayRecord()
        self._models: dict[int, ArrayRecord] = {}

    def put_back(self, messages: Iterable[Message]) -> list[Message]:
        """Return the messages, with their model those that name one of the kept ones; the others as they are."""
        return [self._completed(message) for message in messages]

    def _completed(self, message: Message) -> Message:
        records = entries(message.content)
        config, arrays = records.get(kinds.CONFIG), records.get(kinds.ARRAYS)
        if not isinstance(config, ConfigRecord) or not isinstance(token := entries(config).get(kinds.BANK), str):
            return message
        if isinstance(arrays, ArrayRecord):
            if token != self._token:
                self._token, self._record, self._models = token, arrays, {}
            return message
        index = config.get(kinds.MODEL_INDEX)
        if token != self._token or not isinstance(index, int):
            return message
        if index not in self._models:
            self._models[index] = bank.model(self._record, index)
        plain = dict(entries(config))
        del plain[kinds.BANK], plain[kinds.MODEL_INDEX]
        own = {**records, kinds.CONFIG: restored(ConfigRecord, plain), kinds.ARRAYS: self._models[index]}
        # The sender counts the bytes of what it sent: its own message stays as it is.
        completed = Message.__new__(Message)
        vars(completed).update(vars(message), _content=restored(RecordDict, own))
        return completed
