"""Secure aggregation: equal sums with dropouts, a transcript without updates, and what clients refuse."""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict
from flwr.clientapp.mod import LocalDpMod

from florets.client_app.app import FloretsApp
from florets.client_app.app import app as client_app
from florets.client_app.batching import in_blocks
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_task, message_settings
from florets.strategies.base.federation import FederationError
from florets.strategies.clove.strategy import CLoVE
from florets.strategies.fedavg.strategy import FedAvg
from florets.strategies.ifca.strategy import IFCA
from florets.strategies.local.strategy import Local
from florets.strategies.settings import Privacy
from florets.task.wire import kinds
from florets.task.wire.flower import filled
from florets.task.wire.masking import decoded, encoded, mask, neighbours, scale_bits
from tests.flower_tools import secaggplus_mod

CONFIG = compose(
    ["num_clients=10", "k=2", "task.num_clusters=2", "task.model_options.hidden=[4]", "train.batch_size=64"]
)
TASK = build_task(CONFIG)
SETTINGS = message_settings(CONFIG, TASK)
Change = Callable[[str, int, RecordDict], object]
SECURE: dict[str, Any] = {"secure_aggregation": True, "quorum": 0.1}


class Watched(LocalGrid):
    """Keeps all that is sent and received; loses some replies, or has messages (`before`) or replies changed."""

    def __init__(
        self,
        lost: Mapping[str, Sequence[int]] = {},
        change: Change | None = None,
        before: Change | None = None,
        num_nodes: int = CONFIG.num_clients,
        **others: Any,
    ) -> None:
        super().__init__(client_app, num_nodes, **others)
        self.lost, self.change, self.before = lost, change, before
        self.sent: list[Message] = []
        self.received: list[Message] = []

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        messages = list(messages)
        for message in messages:
            if self.before is not None:
                self.before(message.metadata.message_type, message.metadata.dst_node_id - 2, message.content)
        self.sent += messages
        return super().push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        kept = []
        for reply in super().pull_messages(message_ids):
            kind, node = reply.metadata.message_type, reply.metadata.src_node_id - 2
            if node in self.lost.get(kind, ()):
                continue
            if self.change is not None and reply.has_content():
                self.change(kind, node, reply.content)
            kept.append(reply)
        self.received += [reply for reply in kept if reply.has_content()]
        return kept


def run(strategy: Any, grid: LocalGrid, k: int = 1, rounds: int = 1) -> np.ndarray[Any, Any]:
    start = build_models(replace(CONFIG, k=k), TASK)
    found = strategy.start(grid, start, num_rounds=rounds, timeout=0.05, train_config=SETTINGS)
    return np.concatenate([array.ravel() for array in found.arrays.to_numpy_ndarrays()])


@pytest.mark.parametrize(
    "keys",
    [{}, {"averaging": "gradients"}, {"privacy": Privacy("central", 1e11, clip=0.05), "num_clients": 10}],
)
def test_secure_sums_are_the_plain_ones_and_the_models_are(keys: dict[str, Any]) -> None:
    plain = run(FedAvg(**keys), Watched())
    secure = run(FedAvg(**keys, **SECURE), Watched(in_blocks=in_blocks))
    np.testing.assert_allclose(secure, plain, rtol=0, atol=1e-7)


def test_sums_are_those_of_the_clients_that_stay_with_a_fifth_lost_at_each_step() -> None:
    # 8 of 10 send keys, 7 shares, 6 updates; 5 reveal shares, of which 5 of 8 are needed.
    lost = {kinds.SECURE_KEYS: [0, 1], kinds.SECURE_SHARES: [2], kinds.TRAIN: [3], kinds.SECURE_UNMASK: [4]}
    secure = run(FedAvg(**SECURE), Watched(lost))
    plain = run(FedAvg(quorum=0.1), Watched({kinds.TRAIN: [0, 1, 2, 3]}))
    np.testing.assert_allclose(secure, plain, rtol=0, atol=1e-7)


def content_bytes(content: RecordDict) -> bytes:
    parts: list[bytes] = []
    for record in content.values():
        for value in record.values():
            one = value if isinstance(value, list) else [value]
            parts += [v.data if hasattr(v, "data") else v if isinstance(v, bytes) else repr(v).encode() for v in one]
    return b"".join(parts)


def test_the_transcript_holds_no_update_and_masked_ones_look_random() -> None:
    plain = Watched()
    run(FedAvg(), plain)
    updates = [
        np.concatenate([a.ravel() for a in reply.content["arrays"].to_numpy_ndarrays()]).astype(np.float64)
        for reply in plain.received
        if reply.metadata.message_type == kinds.TRAIN
    ]
    grid = Watched()
    run(FedAvg(**SECURE), grid)
    secure = [reply for reply in grid.received if reply.metadata.message_type != kinds.EVALUATE]
    transcript = b"".join(content_bytes(reply.content) for reply in secure)
    asked = [m.content[kinds.MASKING] for m in grid.sent if m.metadata.message_type == kinds.TRAIN]
    bits, limit = int(asked[0]["bits"]), float(asked[0]["limit"])
    examples = [
        r.content["metrics"]["num-examples"] for r in plain.received if r.metadata.message_type == kinds.TRAIN
    ]
    assert len(updates) == 10
    for update, count in zip(updates, examples, strict=True):
        largest = np.argsort(-np.abs(update))[:8]
        for form in (update.astype(np.float32), update, encoded(update, 0.0, count, bits, limit)):
            assert all(form[place : place + 1].tobytes() not in transcript for place in largest)
    replies = [r.content for r in secure if r.metadata.message_type == kinds.TRAIN]
    # Neither losses, counts nor costs: the masked vector alone.
    assert all(list(content) == ["arrays"] and list(content["arrays"]) == ["masked"] for content in replies)
    words = np.stack([content["arrays"]["masked"].numpy() for content in replies])
    ones = np.unpackbits(words.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 5 * 0.5 / np.sqrt(words.size * 64)
    counts = np.bincount(words.view(np.uint8).ravel(), minlength=256)
    # Chi-square with 255 degrees of freedom: mean 255, deviation 22.6.
    assert np.sum((counts - counts.mean()) ** 2 / counts.mean()) < 255 + 6 * 22.6
    assert len(np.unique(words)) == words.size


def test_a_client_does_no_step_twice_and_sends_nothing_in_clear_afterwards() -> None:
    grid = Watched()
    run(FedAvg(**SECURE), grid)
    first = {kind: next(m for m in grid.sent if m.metadata.message_type == kind) for kind in STEPS}
    clear = {**first[kinds.TRAIN].content}
    del clear[kinds.MASKING]

    def again(kind: str, content: RecordDict) -> str:
        message = Message(content, first[kinds.TRAIN].metadata.dst_node_id, kind)
        (reply,) = grid.send_and_receive([message])
        return "" if reply.has_content() else str(reply.error.reason)

    assert "has been in it already" in again(kinds.SECURE_KEYS, first[kinds.SECURE_KEYS].content)
    for kind in STEPS[1:]:
        assert "it does none twice" in again(kind, first[kind].content)
    for kind in (kinds.TRAIN, kinds.TRAIN_SELECT, kinds.TRAIN_ESTIMATE, "train.custom", "query.custom"):
        assert "sends no update in clear" in again(kind, filled(RecordDict(), clear))
    assert again(kinds.EVALUATE, filled(RecordDict(), clear)) == ""
    # A later try of the same round could leave one member out.
    later = first[kinds.SECURE_KEYS].content
    later["config"][kinds.ATTEMPT] = 2
    assert "has been in it already" in again(kinds.SECURE_KEYS, later)
    later["config"][kinds.SERVER_ROUND] = 2
    assert again(kinds.SECURE_KEYS, later) == ""


STEPS = (kinds.SECURE_KEYS, kinds.SECURE_SHARES, kinds.TRAIN, kinds.SECURE_UNMASK)


def config(content: RecordDict, **values: Any) -> None:
    content["config"].update(values)


def alone(kind: str, node: int, content: RecordDict) -> None:
    if kind == kinds.SECURE_UNMASK:
        # Of its own: a client's place on the ring comes last.
        config(content, alive=content["config"][kinds.ALIVE][-1:])


def two(kind: str, node: int, content: RecordDict) -> None:
    if kind == kinds.SECURE_SHARES:
        held, own = content["config"], content["config"][kinds.MEMBER]
        other = (own + 1) % 10
        config(
            content, members=[own, other], keys=[k for m in (own, other) for k in held[kinds.KEYS][2 * m : 2 * m + 2]]
        )


def moved(kind: str, node: int, content: RecordDict) -> None:
    if kind == kinds.TRAIN and kinds.MASKING in content:
        boxes = content[kinds.MASKING][kinds.BOXES]
        boxes[0], boxes[1] = boxes[1], boxes[0]


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (alone, "takes part only with at least 6"),
        (two, "takes part only with at least 3"),
        (moved, "are not its own"),
    ],
)
def test_a_client_refuses_a_server_that_departs_from_the_protocol(before: Change, says: str, caplog: Any) -> None:
    with contextlib.suppress(FederationError):
        run(FedAvg(**SECURE), Watched(before=before))
    assert says in caplog.text


def test_a_sum_with_a_false_share_leaves_the_models_as_they_are(caplog: Any) -> None:
    def false(kind: str, node: int, content: RecordDict) -> None:
        if kind == kinds.SECURE_UNMASK and node == 3:
            shares = content["config"]["shares"]
            shares[0] = shares[0][:4] + bytes(len(shares[0]) - 4)

    lost = {kinds.SECURE_UNMASK: [0, 1, 2, 4]}
    after = run(FedAvg(**SECURE), Watched(lost, change=false))
    start = np.concatenate([a.ravel() for a in build_models(replace(CONFIG, k=1), TASK).to_numpy_ndarrays()])
    np.testing.assert_array_equal(after, start)
    assert "could not be unmasked" in caplog.text


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: IFCA(**SECURE), "the strategy with these keys never freezes"),
        (lambda: CLoVE(stop_when_stable=False, **SECURE), "the strategy with these keys never freezes"),
        (lambda: FedAvg(robust="median", **SECURE), "robust=median looks at single updates"),
        (
            lambda: FedAvg(num_clients=10, fraction_train=0.2, **SECURE),
            "needs 15 clients .*fraction_train=0.2.*, and there are 10",
        ),
        (lambda: Local(**SECURE), "each client's own model, which the strategy sends"),
    ],
)
def test_what_needs_single_updates_is_refused_by_name(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=f"^secure_aggregation=true.* {says}"):
        make()


def test_sums_of_integers_are_exact_and_never_overflow() -> None:
    limit, counts = 1000.0, [1, 999_000]
    bits = scale_bits(limit, sum(counts))
    values = [np.array([1000.0, -1000.0, 0.25]), np.array([1000.0, -1000.0, -0.5])]
    total = sum(encoded(v, 2.0, n, bits, limit) + mask(b"a", 5) for v, n in zip(values, counts, strict=True))
    mean, loss, weight = decoded(total - mask(b"a", 5) - mask(b"a", 5), bits)
    assert weight == 999_001
    np.testing.assert_allclose(mean, [1000.0, -1000.0, (0.25 - 999_000 * 0.5) / 999_001], rtol=1e-9)
    assert loss == pytest.approx(2.0, abs=1e-9)
    for wrong in (np.array([1000.1]), np.array([np.nan]), np.array([np.inf])):
        with pytest.raises(ValueError, match="beyond the range"):
            encoded(wrong, 0.0, 1, bits, limit)
    with pytest.raises(ValueError, match="not finite"):
        encoded(np.zeros(1), float("nan"), 1, bits, limit)
    # On a ring everybody is its neighbours' neighbour.
    ring = [neighbours(place, 50) for place in range(50)]
    assert all(len(own) == 33 and all(place in ring[other] for other in own) for place, own in enumerate(ring))


@pytest.mark.parametrize("mod", [LocalDpMod(1.0, 1.0, 1.0, 0.5), secaggplus_mod])
def test_flowers_mods_that_would_protect_nothing_are_refused_by_name(mod: Any) -> None:
    name = getattr(mod, "__name__", type(mod).__name__)
    remedy = "secure_aggregation=true" if mod is secaggplus_mod else "privacy.kind="
    with pytest.raises(ValueError, match=f"^{name}: .*{remedy}"):
        FloretsApp(mods=[mod])


@pytest.mark.slow
def test_large_groups_share_masks_with_some_of_their_members() -> None:
    config = replace(CONFIG, num_clients=40)
    task = build_task(config)
    start, settings = build_models(replace(config, k=1), task), message_settings(config, task)
    found = [
        strategy.start(Watched({kinds.TRAIN: range(8)}, num_nodes=40), start, 1, 0.05, settings).arrays
        for strategy in (FedAvg(**SECURE), FedAvg())
    ]
    secure, plain = ([array.ravel() for array in arrays.to_numpy_ndarrays()] for arrays in found)
    np.testing.assert_allclose(np.concatenate(secure), np.concatenate(plain), rtol=0, atol=1e-7)
