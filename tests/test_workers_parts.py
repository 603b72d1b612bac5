"""The parts of worker processes that need none: shared memory, messages, kept models, and what is checked before."""

import os

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from florets.client_app.app import app
from florets.client_app.client import Client
from florets.client_app.session import session
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.conf.saved import run_folder
from florets.engines.engine import num_workers
from florets.engines.local_grid import LocalGrid
from florets.engines.worker_grid import KeptModels
from florets.engines.workers import Unit, _Reading, _Writing
from florets.server_app.resume import CHANGEABLE
from florets.task.client_data import ClientData
from florets.task.shared_file import Place, SharedFile, SharedTask, share_clients
from florets.task.task import Task
from florets.task.wire import kinds
from florets.task.wire.flower import set_message_id
from tests.own_functions import SPEC


def sent(*records: ArrayRecord, **settings: str | int) -> list[tuple[Message, Context]]:
    LocalGrid(app, 1)  # lets messages be built
    config = {key.replace("_", "-"): value for key, value in settings.items()}
    messages = [
        Message(RecordDict({kinds.CONFIG: ConfigRecord(config), kinds.ARRAYS: record}), node, "train")
        for node, record in enumerate(records, start=2)
    ]
    return [(message, Context(1, 2, {}, RecordDict(), {})) for message in messages]


def record(*values: float) -> ArrayRecord:
    return ArrayRecord({f"{row}/w": Array(np.full(3, value, np.float32)) for row, value in enumerate(values)})


def test_in_one_process_clients_work_on_the_runs_own_task() -> None:
    task = Task(SPEC)
    grid = LocalGrid(app, 4, None, None, session.adopt)
    grid.share(task)
    ((message, _),) = sent(record(1.0), task=SPEC.to_json())
    client = Client(message, Context(1, 2, {"partition-id": 1, "num-partitions": 4}, RecordDict(), {}))
    assert client.task is task
    assert client.data is task.client(1)
    session.adopt(None)


def test_a_record_of_several_messages_is_written_once_and_read_as_one_object() -> None:
    file, bank = SharedFile(), record(1.0)
    # An array that is no NumPy array, and a state.
    odd = ArrayRecord({"w": Array("float32", (1,), "torch", b"abcd")})
    messages = sent(bank, bank, odd, bank, seed=5)
    set_message_id(messages[2][0], "7")
    messages[2][1].state["own"] = MetricRecord({"seen": [1.5, 2.0], "n": 3})
    writing, records = _Writing(file, [Unit(messages)]), dict[Place, ArrayRecord]()
    parts = [writing.write(part) for part in (messages[:2], messages[2:])]
    assert [file.read(part).count(b"NUMPY") for part in parts] == [0, 0]
    found = [pair for part in parts for pair in _Reading(file, records).read(part)]
    read = [message.content[kinds.ARRAYS] for message, _ in found]
    assert read[0] is read[1]
    assert read[0] is read[3]
    for (message, context), (copy, its_context) in zip(messages, found, strict=True):
        assert vars(copy.metadata) == vars(message.metadata)
        assert copy.content == message.content
        assert its_context == context
    file.close()


class Odd(Task):
    """Clients whose tensors lie in memory in several ways; client 2's data cannot be made."""

    def build_client(self, partition_id: int) -> ClientData:
        if partition_id == 2:
            raise ValueError("there are none")
        draw = torch.Generator().manual_seed(partition_id)
        x = torch.rand(5, 3, 4, 4, generator=draw).contiguous(memory_format=torch.channels_last)
        return ClientData(x, torch.arange(5), torch.rand(6, 5, generator=draw).t()[1:], torch.empty(0), partition_id)


def test_clients_data_are_shared_with_their_order_in_memory() -> None:
    task = Odd(SPEC)
    file = SharedFile()
    shared = SharedTask(share_clients(task, file), file)
    file.close()
    for client in (0, 1, 3):
        mine, theirs = task.build_client(client), shared.client(client)
        for name in ("x_train", "y_train", "x_test", "y_test"):
            one, other = getattr(mine, name), getattr(theirs, name)
            assert torch.equal(one, other)
            assert (one.dtype, one.stride()) == (other.dtype, other.stride())
        assert theirs.cluster == client
        truth = (shared.cluster_of(client), shared.num_examples_of(client))
        assert truth == (task.cluster_of(client), task.num_examples_of(client))
    assert "data" not in vars(shared)
    assert (shared.input_shape, shared.num_outputs) == (task.input_shape, task.num_outputs)
    # Nobody else sees what one process writes there.
    shared.client(0).x_train[0] = -1
    assert torch.equal(shared.client(1).x_train, task.build_client(1).x_train)
    # Whoever asks is told why, or has the data after all.
    assert len(shared.client(2).x_train) == len(Task(task.spec).client(2).x_train)


def test_a_kept_model_is_put_back_into_the_message_that_names_it() -> None:
    kept, models = KeptModels(), record(1.0, 2.0)
    (whole, _), (named, _), (unknown, _) = (
        sent(models, bank="t")[0],
        sent(record(), bank="t", model_index=1, seed=5)[0],
        sent(record(), bank="other", model_index=1)[0],
    )
    for message in (named, unknown):
        del message.content[kinds.ARRAYS]
    first, second, third = kept.put_back([whole, named, unknown])
    assert first is whole
    assert third is unknown
    assert second.content.array_records[kinds.ARRAYS]["w"].data == models["1/w"].data
    assert dict(second.content.config_records[kinds.CONFIG]) == {"seed": 5}
    assert second.metadata is named.metadata
    assert kinds.ARRAYS not in named.content
    assert kinds.MODEL_INDEX in named.content.config_records[kinds.CONFIG]


def test_a_wrong_number_of_workers_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"workers=21: must be at most num_clients=20; auto means one for each core"
    ):
        compose(["workers=21"])


def test_the_number_of_workers_is_no_part_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_folder(compose(["workers=2"]), ["workers=2"]) == run_folder(compose([]), [])
    assert "workers" in CHANGEABLE
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(4))
    assert [num_workers("auto", clients) for clients in (3, 100)] == [3, 4]
