"""Flower's private parts, each with the reason; the only module that touches them.

`tests/test_flower_parts.py` compares each with the installed Flower; CONTRIBUTING.md says how to take the next.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import flwr
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

_Any = TypeVar("_Any", ArrayRecord, ConfigRecord, MetricRecord, RecordDict)
_NUMBERS = {int, float}
_LEGAL: dict[type, set[type]] = {
    ArrayRecord: {Array},
    MetricRecord: _NUMBERS,
    ConfigRecord: {*_NUMBERS, str, bool, bytes},
    RecordDict: {ArrayRecord, ConfigRecord, MetricRecord},
}

INSTALLED: str = flwr.__version__

APP_NOT_LOADED, CLIENT_APP_RAISED, MESSAGE_UNAVAILABLE, NODE_UNAVAILABLE = 1, 2, 3, 5
"""Codes of error replies, which are part of Flower's protocol."""
_INVALID_BUNDLE = 7


@dataclass(frozen=True)
class NodeInfo:
    """What `Grid.get_nodes` says of a node."""

    node_id: int
    name: str = ""
    public_key: bytes = b""


def minor(version: str) -> str:
    """Return the minor version of a version, such as 1.42."""
    return ".".join(version.split(".")[:2])


def become_task(run_id: int, node_id: int, task_id: int) -> None:
    """Let `Message(...)` be called in this process, which is none of Flower's: only Flower's own may otherwise."""
    from flwr.supercore.task_identity import TaskIdentity

    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, node_id, task_id


def set_message_id(message: Message, message_id: str) -> None:
    """Give a message the id by which its reply names it, as each of Flower's grids does when it sends one."""
    vars(message.metadata)["_message_id"] = message_id


def filled(record: _Any, values: Mapping[str, Any]) -> _Any:
    """Put values into a record and return it; those of the common types without Flower's slow check of each."""
    legal, data = _LEGAL[type(record)], vars(record)["_data"]
    for name, value in values.items():
        # By type: of a subclass, such as a NumPy number, and of lists Flower itself says whether it takes them.
        if type(value) in legal and type(name) is str:
            data[name] = value
        else:
            record[name] = value
    return record


def guard_bundles(refuses: Callable[[bytes, int], str | None]) -> None:
    """Let a SuperNode of this process run only bundles of which `refuses` returns None, before their code is run.

    Flower verifies a run's bundle when its first message comes, and stores it only then; the process that installs it
    gets it from there.
    """
    from flwr.app import Error
    from flwr.supernode import start_client_internal

    node: Any = start_client_internal
    pull, verify, error = node._pull_and_store_message, node._verify_fab, node.FAB_VERIFICATION_ERROR
    unsigned = {"none": "needed"}
    run = 0

    def guarded(**given: Any) -> Any:
        get_fab: Callable[[str, int], Any] = given["get_fab"]
        entities = given["trusted_entities"] or unsigned

        def fetched(fab_hash: str, run_id: int) -> Any:
            nonlocal run
            run, fab = run_id, get_fab(fab_hash, run_id)
            if entities is unsigned:
                # Without it Flower refuses a bundle before it verifies any.
                fab.verifications = {"valid_license": "none needed"}
            return fab

        return pull(**{**given, "get_fab": fetched, "trusted_entities": entities})

    def verified(fab: Any, entities: dict[str, str]) -> bool:
        # Flower installs a bundle under the hash that the server names.
        is_itself = hashlib.sha256(fab.content).hexdigest() == fab.hash_str
        reason = refuses(fab.content, run) if is_itself else "the bundle is another than its hash says"
        node.FAB_VERIFICATION_ERROR = error if reason is None else Error(_INVALID_BUNDLE, reason)
        return reason is None and (entities is unsigned or verify(fab, entities))

    node._pull_and_store_message, node._verify_fab = guarded, verified


def run_supernode(arguments: Sequence[str]) -> None:
    """Run Flower's SuperNode with these arguments in this process; it ends with the process."""
    from flwr.supernode.cli import flower_supernode

    sys.argv = ["flower-supernode", *arguments]
    flower_supernode()
