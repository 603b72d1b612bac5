"""The policy of a node's owner, and the node's log: checked and written round the answer to each message."""

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict

from florets.client_app.client import Client, client_of
from florets.client_app.node import client_key, config_of, has_process_of_its_own, is_simulated
from florets.task import node_log
from florets.task.consent import Refused
from florets.task.node_config import (
    ANSWERS,
    DATA_DIR,
    LEAST_RECORDS,
    LOG_FOLDER,
    MOST_EPSILON,
    POLICY_KEYS,
    answered_by,
)
from florets.task.node_log import Logged, NodeLog
from florets.task.training.settings import KEYS
from florets.task.wire import kinds, leaving
from florets.task.wire.records import payload_bytes

_SUBSETS = (kinds.LOSS_BATCH, kinds.GRADIENT_BATCH, kinds.FOLD_SIZE)
"""Settings by which a server asks for an answer from so many of a node's records; 0: all."""
_ALWAYS = (kinds.HELLO,)
_DELTA = 1e-5


@dataclass(frozen=True)
class Policy:
    """What a node's owner allows: what never leaves, which messages, least records and most epsilon."""

    never_send: frozenset[str]
    answers: tuple[str, ...]
    least_records: int
    most_epsilon: float | None

    @classmethod
    def of(cls, node_config: Mapping[str, Any]) -> "Policy":
        """Read the policy; raise ValueError for a value that is none."""
        patterns = answered_by(node_config)
        for pattern in patterns:
            # An author's own message is an import path.
            if ":" not in pattern and not any(fnmatchcase(name, pattern) for name in leaving.LEAVING):
                known = ", ".join(leaving.LEAVING)
                raise ValueError(f"this node's config has {ANSWERS}={pattern}, which is no message: {known}")
        return cls(
            leaving.named(node_config.get(kinds.NEVER_SEND, "")),
            patterns,
            _above_0(node_config, LEAST_RECORDS, int) or 0,
            _above_0(node_config, MOST_EPSILON, float),
        )

    def check(self, name: str, client: Client) -> None:
        """Raise Refused for a message that this node does not answer; nothing is computed before."""
        if self.answers and name not in _ALWAYS and not any(fnmatchcase(name, one) for one in self.answers):
            raise Refused(
                f"the owner of this node does not let it answer {name}; run an algorithm that does not ask it, or "
                f"let the owner add it to {ANSWERS} in the node config"
            )
        if problem := leaving.refusal(self.never_send, leaving.asked_for(name, client.config)):
            raise Refused(problem)
        if self.least_records:
            self._check_records(name, client)

    def _check_records(self, name: str, client: Client) -> None:
        # How tables are prepared is agreed on after they are described.
        records = client.task.description.train_records if name == kinds.DESCRIBE else client.num_examples
        counts = {"records": records, **{key: client.number(key, 0) for key in _SUBSETS}}
        steps = client.number(KEYS["local_steps"], 0)
        counts["batch-size * local-steps"] = steps * client.number(KEYS["batch_size"], 0)
        if leaving.EVALUATIONS in leaving.LEAVING.get(name, {}).values():
            counts["test records"] = len(client.data.part("test")[0])
        for what, count in counts.items():
            # Of its own data the node says no number.
            if (count or "records" in what) and count < self.least_records:
                raise Refused(
                    f"the owner of this node lets it answer from at least {self.least_records} records, and {what} "
                    f"are fewer; ask for more, or let the owner lower {LEAST_RECORDS} in the node config"
                )

    def spent(self, name: str, client: Client) -> float:
        """Return the rho that an answer spends of zero-concentrated privacy; raise Refused where it has no noise.

        Source: Bun and Steinke 2016, Proposition 1.6: noise of z times the norm that an answer is clipped to costs
        1 / (2 z^2). A choice is made of noised losses, and costs nothing more.
        """
        asked = leaving.asked_for(name, client.config) - {leaving.CHOICES}
        levels = dict.fromkeys((leaving.MODELS, leaving.GRADIENTS, leaving.MASKED), kinds.PRIVACY_NOISE)
        levels[leaving.LOSS_VECTORS] = kinds.PRIVACY_LOSS_NOISE
        # Noise that hides single records bounds nothing that is said of all of them.
        if kinds.PRIVACY not in client.config or client.hides_records or asked - levels.keys():
            raise Refused(
                f"the owner of this node lets it answer only with noise of its own ({MOST_EPSILON}); run with "
                f"privacy.kind=local and an algorithm that it covers, or let the owner remove {MOST_EPSILON}"
            )
        multipliers = [client.number(levels[what], 0.0) for what in asked]
        return sum(math.inf if not 0 < z < math.inf else 1 / (2 * z * z) for z in multipliers)

    @property
    def budget(self) -> float:
        """The largest rho whose epsilon is allowed (Bun and Steinke 2016, Proposition 1.3)."""
        if self.most_epsilon is None:
            return math.inf
        log_delta = math.log(1 / _DELTA)
        return (math.sqrt(log_delta + self.most_epsilon) - math.sqrt(log_delta)) ** 2


def _above_0(node_config: Mapping[str, Any], key: str, kind: type[int] | type[float]) -> Any:
    """Return a number of the policy, None where the owner gives none."""
    value = node_config.get(key)
    if key in node_config and (isinstance(value, bool) or not isinstance(value, (int, kind)) or not value > 0):
        what = "an integer" if kind is int else "a number"
        raise ValueError(f"this node's config has {key}={value!r}, which must be {what} above 0")
    return value


def answered(
    handle: Callable[[Client], RecordDict],
    message: Message,
    context: Context,
    is_stated: Callable[[Exception], bool],
) -> RecordDict:
    """Return the handler's answer where the owner's policy lets it leave, and write what left to the node's log.

    Raise Refused if it does not, or the log cannot be written. `is_stated`: whether an error's text quotes no data.
    """
    log = _log_of(context)
    if log is None and context.node_config.keys().isdisjoint(POLICY_KEYS):
        return handle(client_of(message, context))
    begun, answer, reason, sent = time.perf_counter(), node_log.ANSWERED, "", dict[str, leaving.Left]()
    config = config_of(message.content)
    name = leaving.message_name(message.metadata.message_type, message.content)
    try:
        content = _allowed(handle, name, message, context, log)
        sent = leaving.left(name, config, content)
        return content
    except Exception as error:
        answer = node_log.REFUSED if isinstance(error, Refused) else node_log.FAILED
        reason = str(error) if is_stated(error) else type(error).__name__
        raise
    finally:
        server_round = config.get(kinds.SERVER_ROUND, 0)
        line = Logged(
            time.time(),
            context.run_id,
            server_round if isinstance(server_round, int) else 0,
            name,
            client_key(context),
            os.environ.get(node_log.SERVER, ""),
            payload_bytes(message.content),
            answer,
            reason,
            time.perf_counter() - begun,
            sent,
        )
        try:
            if log is not None:
                log.append(line)
        except OSError as error:
            raise Refused(
                f"this node's log cannot be written ({error.strerror}), and nothing leaves that is not in it"
            ) from None


def _allowed(
    handle: Callable[[Client], RecordDict], name: str, message: Message, context: Context, log: NodeLog | None
) -> RecordDict:
    """Return the answer that the policy allows; it is checked before anything is computed, and after."""
    policy, client = Policy.of(context.node_config), client_of(message, context)
    policy.check(name, client)
    spent = 0.0 if policy.most_epsilon is None else policy.spent(name, client)
    if log is not None and spent and not log.spend(spent, policy.budget):
        raise Refused(
            f"with this answer the node would pass the epsilon of {policy.most_epsilon:g} that its owner allows for "
            f"all runs together; ask for more noise, or let the owner raise {MOST_EPSILON} in the node config"
        )
    content = handle(client)
    # Without figures a description of data is no statistics.
    sent = set(leaving.left(name, client.config, content))
    if not client.shares_statistics:
        sent.discard(leaving.STATISTICS)
    if problem := leaving.refusal(policy.never_send, sent):
        raise Refused(problem)
    return content


def _log_of(context: Context) -> NodeLog | None:
    """Return the node's log: where its config names a folder, and on every real node with data of its own."""
    config = context.node_config
    if LOG_FOLDER in config:
        return NodeLog(Path(str(config[LOG_FOLDER])))
    if DATA_DIR in config and not is_simulated(context) and has_process_of_its_own():
        return NodeLog(node_log.default_folder())
    return None
