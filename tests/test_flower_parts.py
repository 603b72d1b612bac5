"""Flower's parts that are not its public interface, as `task/wire/flower.py` and the tests take them."""

import hashlib
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import flwr
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from florets.engines.local_grid import as_flowers_process
from florets.task.wire import flower
from florets.task.wire.flower import minor
from tests import flower_tools
from tests.flower_tools import SUPPORTED, ErrorCode, Fab, NodeInfo, Run, TaskIdentity, start_client_internal

ROOT = Path(__file__).parents[1]


def message() -> Message:
    as_flowers_process()
    return Message(RecordDict(), 2, "train")


def names(of: Iterable[Any]) -> list[str]:
    return sorted(map(str, of))


def parameters(of: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(of).parameters)


FOUND: dict[str, Callable[[], object]] = {
    "a message's id": lambda: "_message_id" in vars(message().metadata),
    "fields of a record": lambda: [
        names(vars(kind())) for kind in (ArrayRecord, ConfigRecord, MetricRecord, RecordDict)
    ],
    "fields of Array": lambda: names(vars(Array("float32", (), "numpy.ndarray", b""))),
    "Context()": lambda: parameters(Context),
    "ClientApp()": lambda: parameters(ClientApp.__call__),
    "methods that a Grid must have": lambda: names(Grid.__abstractmethods__),
    "methods that a Strategy must have": lambda: names(Strategy.__abstractmethods__),
    "Strategy.start()": lambda: [name for name in parameters(Strategy.start) if name != "should_stop"],
    "TaskIdentity": lambda: names(name for name in vars(type(TaskIdentity)) if not name.startswith("_")),
    "fields of NodeInfo": lambda: [
        field for field in ("node_id", "name", "public_key") if field in NodeInfo.DESCRIPTOR.fields_by_name
    ],
    "_pull_and_store_message()": lambda: parameters(start_client_internal._pull_and_store_message),
    "_verify_fab()": lambda: [*parameters(start_client_internal._verify_fab), *names(Fab.__dataclass_fields__)],
    "error of a bundle": lambda: [start_client_internal.FAB_VERIFICATION_ERROR.code],
    "error codes": lambda: [
        ErrorCode.LOAD_CLIENT_APP_EXCEPTION,
        ErrorCode.CLIENT_APP_RAISED_EXCEPTION,
        ErrorCode.MESSAGE_UNAVAILABLE,
        ErrorCode.NODE_UNAVAILABLE,
        ErrorCode.INVALID_FAB,
    ],
    "build_fab_from_disk()": lambda: parameters(flower_tools.build_fab_from_disk),
    "load_app()": lambda: parameters(flower_tools.load_app),
    "validate()": lambda: parameters(flower_tools.validate),
    "parse_config_args()": lambda: parameters(flower_tools.parse_config_args),
}
"""What is looked up, by the name under which a change of it is reported."""

KNOWN: dict[str, object] = {
    "a message's id": True,
    "fields of a record": [["_check_key_fn", "_check_value_fn", "_data"]] * 4,
    "fields of Array": ["_is_dirty", "data", "dtype", "shape", "stype"],
    "Context()": ["run_id", "node_id", "node_config", "state", "run_config", "series_id"],
    "ClientApp()": ["self", "message", "context"],
    "methods that a Grid must have": [
        *("create_message", "get_node_ids", "pull_messages", "push_messages", "run", "send_and_receive", "set_run")
    ],
    "methods that a Strategy must have": [
        *("aggregate_evaluate", "aggregate_train", "configure_evaluate", "configure_train", "summary")
    ],
    # Flower 1.43 has should_stop as well.
    "Strategy.start()": [
        *("self", "grid", "initial_arrays", "num_rounds", "timeout", "train_config", "evaluate_config", "evaluate_fn")
    ],
    "TaskIdentity": ["node_id", "run_id", "task_id"],
    "fields of NodeInfo": ["node_id", "name", "public_key"],
    "_pull_and_store_message()": [
        *("state", "object_store", "node_config", "receive", "get_run", "get_fab", "pull_object"),
        *("confirm_message_received", "trusted_entities"),
    ],
    "_verify_fab()": ["fab", "trusted_entities", "content", "hash_str", "verifications"],
    "error of a bundle": [7],
    "error codes": [1, 2, 3, 5, 7],
    "build_fab_from_disk()": ["app"],
    "load_app()": ["module_attribute_str", "error_type", "project_dir"],
    "validate()": ["module_attribute_str", "check_module", "project_dir"],
    "parse_config_args()": ["config", "flatten"],
}
"""The same in every version that is supported."""


@pytest.mark.parametrize("part", FOUND)
def test_a_part_of_flower_is_as_it_is_used(part: str) -> None:
    assert FOUND[part]() == KNOWN[part], f"Flower {flwr.__version__} has changed {part}"


def test_the_installed_version_is_one_of_those_that_the_package_may_be_installed_with() -> None:
    assert minor(flwr.__version__) in SUPPORTED
    versions = f">={SUPPORTED[0]},<1.{int(SUPPORTED[-1].partition('.')[2]) + 1}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"flwr{versions}" in project["dependencies"]
    assert f"flwr[simulation]{versions}" in project["optional-dependencies"]["sim"]


def test_nothing_else_imports_a_private_part_of_flower() -> None:
    wrong = {}
    for path in ROOT.glob("[!.]*/**/*.py"):
        private = re.findall(
            r"^ *(?:from|import) flwr\.(?!app|clientapp|serverapp)\S+", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        if private and path.relative_to(ROOT).as_posix() not in ("task/wire/flower.py", "tests/flower_tools.py"):
            wrong[path.name] = private
    assert not wrong, "import it in task/wire/flower.py"


@pytest.mark.parametrize("wanted", [None, {"key": "of a signer"}])
def test_a_bundle_is_refused_before_flower_stores_it(wanted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    replies: list[str] = []
    for name in ("_pull_and_store_message", "_verify_fab", "FAB_VERIFICATION_ERROR"):
        monkeypatch.setattr(start_client_internal, name, getattr(start_client_internal, name))
    monkeypatch.setattr(
        start_client_internal, "_insert_message", lambda reply, *_: replies.append(reply.error.reason)
    )
    flower.guard_bundles(lambda content, run: None if content == b"good" else f"run {run} brings {content.decode()}")

    def pulled(content: bytes, digest: str = "") -> bool:
        """Return whether a bundle got as far as to have its configuration read."""
        fab = Fab(digest or hashlib.sha256(content).hexdigest(), content, {"valid_license": "1"} if wanted else {})
        state = SimpleNamespace(get_run=lambda _: None, get_node_id=lambda: 1)
        try:
            start_client_internal._pull_and_store_message(
                state=state, object_store=None, node_config={}, receive=lambda: (message(), None),
                get_run=lambda _: Run.create_empty(5), get_fab=lambda *_: fab, pull_object=None,
                confirm_message_received=None, trusted_entities=wanted,
            )  # fmt: skip
        except Exception as error:  # it is no bundle
            return "zip" in str(error)
        return False

    assert not pulled(b"bad")
    assert not pulled(b"good", "0" * 64)
    # A signature that is wanted is wanted as well.
    assert pulled(b"good") == (wanted is None)
    unsigned = [] if wanted is None else ["The FAB could not be verified."]
    assert [re.sub(r"run \d+ ", "", reason) for reason in replies] == [
        *("brings bad", "the bundle is another than its hash says"), *unsigned
    ]  # fmt: skip
