"""Flower's private parts, and the versions in which they are known: the only module that imports or touches them.

`tests/test_flower_parts.py` compares each with the installed Flower; CONTRIBUTING.md says how to take the next.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import flwr
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, Metadata, MetricRecord, RecordDict

SUPPORTED = ("1.41", "1.42")
"""Minor versions that this module is tested with, those of pyproject.toml; the last one is recommended."""


class UnsupportedFlower(RuntimeError):
    """The installed Flower is none of the supported versions."""


def minor(version: str) -> str:
    """Return the minor version of a version, such as 1.42."""
    return ".".join(version.split(".")[:2])


def check_version(installed: str) -> None:
    """Raise UnsupportedFlower unless `installed` is one of the supported versions."""
    if minor(installed) not in SUPPORTED:
        raise UnsupportedFlower(
            f"Flower {installed} is installed here, and this version of florets works with "
            f'{" and ".join(SUPPORTED)}: pip install "flwr=={SUPPORTED[-1]}.*". The server and all nodes of a '
            "federation need the same minor version."
        )


INSTALLED: str = flwr.__version__
# Before the imports below, which may be what has changed.
check_version(INSTALLED)

from flwr.common.constant import ErrorCode  # noqa: E402
from flwr.proto.node_pb2 import NodeInfo  # noqa: E402
from flwr.supercore.run import Run  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

__all__ = ["NodeInfo", "Run"]

APP_NOT_LOADED: int = ErrorCode.LOAD_CLIENT_APP_EXCEPTION
CLIENT_APP_RAISED: int = ErrorCode.CLIENT_APP_RAISED_EXCEPTION
MESSAGE_UNAVAILABLE: int = ErrorCode.MESSAGE_UNAVAILABLE
NODE_UNAVAILABLE: int = ErrorCode.NODE_UNAVAILABLE

Record = ArrayRecord | ConfigRecord | MetricRecord
_Any = TypeVar("_Any", ArrayRecord, ConfigRecord, MetricRecord, RecordDict)

_DATA = "_data"
# All that an empty record holds beside its values: the functions that check each.
_EMPTY: dict[type, dict[str, Any]] = {
    kind: vars(kind()) for kind in (ArrayRecord, ConfigRecord, MetricRecord, RecordDict)
}


def guard_bundles(refuses: Callable[[bytes, int], str | None]) -> None:
    """Let a SuperNode of this process run only bundles of which `refuses` returns None, before their code is run.

    It is given a bundle and the run's id; its text is what the server gets in place of an answer. Signatures
    (`--trusted-entities`) are wanted as well where the SuperNode was started with them. Flower verifies a run's
    bundle when its first message comes, and stores it only then; the process that installs it gets it from there.
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
        node.FAB_VERIFICATION_ERROR = error if reason is None else Error(ErrorCode.INVALID_FAB, reason)
        return reason is None and (entities is unsigned or verify(fab, entities))

    node._pull_and_store_message, node._verify_fab = guarded, verified


def run_supernode(arguments: Sequence[str]) -> None:
    """Run Flower's SuperNode with these arguments in this process; it ends with the process."""
    from flwr.supernode.cli import flower_supernode

    sys.argv = ["flower-supernode", *arguments]
    flower_supernode()


def secure_parts() -> tuple[Any, Any]:
    """Return the modules of Flower's SecAgg+ for keys and encryption, and for Shamir's shares."""
    from flwr.common.secure_aggregation.crypto import shamir, symmetric_encryption

    return symmetric_encryption, shamir


def empty_run(run_id: int) -> Run:
    """Return a run's information with nothing but its id."""
    return Run.create_empty(run_id)


def become_task(run_id: int, node_id: int, task_id: int) -> None:
    """Let messages be built in this process, which is none of Flower's."""
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run_id, node_id, task_id


def entries(record: Record | RecordDict) -> dict[str, Any]:
    """Return the dictionary in which a record, or a message's content, holds its values; nothing is checked."""
    found: dict[str, Any] = record.__dict__[_DATA]
    return found


def restored(kind: type[_Any], values: dict[str, Any]) -> _Any:
    """Return a record that holds `values` themselves, which have been in one of its kind: none is checked again."""
    made = kind.__new__(kind)
    made.__dict__.update(_EMPTY[kind], _data=values)
    return made


def array(dtype: str, shape: tuple[int, ...], data: bytes, stype: str = "numpy.ndarray") -> Array:
    """Return ``Array(dtype, shape, stype, data)``, without its search for how it was called."""
    made = Array.__new__(Array)
    made.__dict__.update(dtype=dtype, shape=shape, stype=stype, data=data)
    return made


def new_metadata(node_id: int, kind: str, created_at: float, ttl: float, group_id: str) -> dict[str, Any]:
    """Return the metadata of a message of this process to a node, as `message_of` takes them."""
    return {
        "_run_id": TaskIdentity.run_id,
        "_message_id": "",
        "_src_node_id": TaskIdentity.node_id,
        "_dst_node_id": node_id,
        "_src_task_id": TaskIdentity.task_id,
        "_dst_task_id": None,
        "_reply_to_message_id": "",
        "_group_id": group_id,
        "_created_at": created_at,
        "_ttl": ttl,
        "_message_type": kind,
        "_delivered_at": "",
    }


def reply_metadata(message: Message, created_at: float) -> dict[str, Any]:
    """Return the metadata of the reply to a message, as `message_of` takes them."""
    sent = vars(message.metadata)
    return {
        "_run_id": sent["_run_id"],
        "_message_id": "",
        "_src_node_id": sent["_dst_node_id"],
        "_dst_node_id": sent["_src_node_id"],
        "_src_task_id": sent["_dst_task_id"],
        "_dst_task_id": sent["_src_task_id"],
        "_reply_to_message_id": sent["_message_id"],
        "_group_id": sent["_group_id"],
        "_created_at": created_at,
        "_ttl": sent["_created_at"] + sent["_ttl"] - created_at,
        "_message_type": sent["_message_type"],
        "_delivered_at": "",
    }


def set_metadata(message: Message, **values: str | float) -> None:
    """Set what only the sender of a message sets, such as `message_id` or `created_at`."""
    vars(message.metadata).update((f"_{name}", value) for name, value in values.items())


def parts_of(message: Message) -> tuple[dict[str, Any], RecordDict | None, object]:
    """Return a message's metadata, content and error; its properties raise where it has no content or no error."""
    own = vars(message)
    return vars(own["_metadata"]), own["_content"], own["_error"]


def message_of(metadata: Mapping[str, Any], content: RecordDict | None, error: object = None) -> Message:
    """Return the message with these parts, unchecked."""
    about, message = Metadata.__new__(Metadata), Message.__new__(Message)
    about.__dict__.update(metadata)
    message.__dict__.update(_metadata=about, _content=content, _error=error)
    return message


def with_content(message: Message, content: RecordDict) -> Message:
    """Return a message with another content; the metadata of both are one object."""
    changed = Message.__new__(Message)
    changed.__dict__.update(vars(message), _content=content)
    return changed
