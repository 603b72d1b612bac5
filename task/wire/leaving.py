"""Names of what leaves a node: one table for its owner's policy and log, by message and entry of the reply."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from flwr.app import ArrayRecord, RecordDict

from florets.task.wire import kinds
from florets.task.wire.records import payload_of

MODELS, GRADIENTS, LOSS_VECTORS, CHOICES = "models", "gradients", "loss-vectors", "choices"
EVALUATIONS, STATISTICS, LABELS, CLASS_SHARES = "evaluations", "statistics", "labels", "class-shares"
FOLDS, PROTOTYPES, PRINCIPAL_VECTORS, MOMENTS, CENTRES = (
    *("folds", "prototypes", "principal-vectors", "moments", "centres"),
)
MASKED = "masked-models"
"""Models of which the server learns the sum alone (`secure_aggregation=true`)."""
OWN = "own"
"""All but the model that a handler of an author returns."""
NAMES = (
    *(MODELS, GRADIENTS, LOSS_VECTORS, CHOICES, EVALUATIONS, STATISTICS, LABELS, CLASS_SHARES, FOLDS, PROTOTYPES),
    *(PRINCIPAL_VECTORS, MOMENTS, CENTRES, MASKED, OWN),
)
"""Names of what an owner may forbid to send."""
FACTS = "facts"
"""A part of every answer: who the client is, counts of its records, mean training loss, what the answer cost."""

_FACTS = {
    **dict.fromkeys((kinds.NUM_EXAMPLES, kinds.TRAIN_LOSS, kinds.HALVINGS, "kept", kinds.WORK), FACTS),
    **dict.fromkeys((kinds.CLIENT_KEY, kinds.DEVICE, kinds.FINGERPRINT, kinds.FLOWER, kinds.CLUSTER), FACTS),
    **dict.fromkeys(("num-partitions", kinds.NEVER_SEND), FACTS),
}
_TESTS = {
    **{
        tuned + part + result: EVALUATIONS
        for tuned in ("", kinds.TUNED)
        for part in ("", kinds.VALIDATED)
        for result in (kinds.EVAL_LOSS, kinds.EVAL_ACCURACY, kinds.NUM_EXAMPLES)
    },
    **{kinds.NUM_EXAMPLES: FACTS, kinds.SCORES: EVALUATIONS, kinds.TEST_SUMS: STATISTICS},
}
_MODEL = {kinds.ARRAYS: MODELS, kinds.SECOND_ORDER: STATISTICS}
_FOLD_ROWS = {"folds": FOLDS, "near-duplicates": FOLDS}
_BY_CLASS = {kinds.LABEL_COUNTS: LABELS, kinds.PROTOTYPES: PROTOTYPES}
LEAVING: Mapping[str, Mapping[str, str]] = {
    kinds.HELLO: {},
    kinds.DESCRIBE: {kinds.DESCRIPTION: STATISTICS},
    kinds.LOSSES: {"losses": LOSS_VECTORS},
    kinds.TRAIN: {**_MODEL, kinds.STEP_LOSSES: LOSS_VECTORS},
    f"{kinds.TRAIN}.{kinds.MASKED}": {kinds.ARRAYS: MASKED},
    **{kind: {"keys": FACTS, "boxes": FACTS, "shares": FACTS} for kind in kinds.SECURE},
    kinds.TRAIN_SELECT: {**_MODEL, kinds.CHOSEN_MODEL: CHOICES, "losses": LOSS_VECTORS},
    kinds.TRAIN_ESTIMATE: _MODEL,
    kinds.EVALUATE: _TESTS,
    "shared.train_folds": {**_MODEL, **_FOLD_ROWS},
    "shared.query_folds": _FOLD_ROWS,
    "shared.train_bilevel": {**_MODEL, kinds.GLOBAL: MODELS},
    "centralised.train_pooled": _MODEL,
    "cfl_gp.train_probe": {**_MODEL, "profile": GRADIENTS},
    "fedala.train_mixed": {**_MODEL, kinds.MIX: MODELS},
    "fedala.evaluate_mixed": _TESTS,
    "fedem.train_mixture": {**_MODEL, kinds.SHARES: CHOICES, "class-sums": CLASS_SHARES},
    "fedem.evaluate_mixture": _TESTS,
    "fedpac.train_split": {**_MODEL, **_BY_CLASS, "statistics": MOMENTS, "spread": MOMENTS},
    "fedproto.train_prototypes": {**_MODEL, **_BY_CLASS},
    "fedsoft.train_anchored": _MODEL,
    "fedsoft.closest": {"closest": CHOICES},
    "flux.descriptor": {kinds.ARRAYS: MOMENTS},
    "k_fed.kmeans": {kinds.ARRAYS: CENTRES, "sizes": CENTRES},
    "pacfl.principal_vectors": {kinds.ARRAYS: PRINCIPAL_VECTORS, "places": PRINCIPAL_VECTORS},
    "per_fedavg.train_adapted": _MODEL,
    "per_fedavg.evaluate_adapted": _TESTS,
    "random_effects.terms": {kinds.SECOND_ORDER: STATISTICS, "value": STATISTICS},
    "two_phase.factors": {kinds.ARRAYS: MOMENTS},
    "two_phase.subspace": {kinds.ARRAYS: MOMENTS},
    "two_phase.moment_descent": _MODEL,
}
"""By message (`message_name`), what each entry of its reply, or all of a record, is; those of all are `FACTS`."""
_EITHER = frozenset(
    {kinds.TRAIN, kinds.TRAIN_SELECT, kinds.TRAIN_ESTIMATE, "shared.train_folds", "cfl_gp.train_probe"}
)
"""Messages whose reply is a gradient where the server asks for one; all others send models whatever it asks for."""
_ON_REQUEST = frozenset({kinds.SECOND_ORDER, kinds.STEP_LOSSES, kinds.TEST_SUMS, kinds.DESCRIPTION, "class-sums"})
"""Entries that a message need not ask for, or that the node may leave out of its answer."""


def message_name(kind: str, content: RecordDict) -> str:
    """Return a message's name: its kind, `<algorithm>.<function>` of a built-in handler, or an import path."""
    if kind.partition(".")[2] != kinds.CUSTOM:
        # Of other kinds a record of this name changes nothing: it must not change what they are held to.
        return f"{kind}.{kinds.MASKED}" if kind == kinds.TRAIN and kinds.MASKING in content else kind
    config: Any = content[kinds.CONFIG]
    path = str(config.get(kinds.HANDLER, ""))
    if not kinds.is_built_in(path):
        return path
    module, _, function = path.partition(":")
    return f"{module.split('.')[2]}.{function}"


def asked_for(name: str, config: Mapping[str, Any]) -> set[str]:
    """Return the names of what every answer to a message holds, `FACTS` left out; of an author's nothing is known."""
    asked = {what for entry, what in LEAVING.get(name, {}).items() if entry not in _ON_REQUEST}
    if config.get(kinds.STEP_LOSSES) and name == kinds.TRAIN:
        asked.add(LOSS_VECTORS)
    return {_as_sent(what, name, config) for what in asked} - {FACTS}


@dataclass(frozen=True)
class Left:
    """How much of one name has left: numbers and texts, and their bytes."""

    entries: int
    size: int


def left(name: str, config: Mapping[str, Any], content: RecordDict) -> dict[str, Left]:
    """Return what a reply to a message holds, by name; what the table does not name is `OWN`."""
    table = LEAVING.get(name, _MODEL if config.get(kinds.REPLY) else {})
    found: dict[str, Left] = {}
    for record, values in content.items():
        # Entries of a model have any names.
        single: Mapping[str, object] = {} if isinstance(values, ArrayRecord) else values
        for entry in single or [record]:
            what = table.get(entry) or table.get(record) or _FACTS.get(record) or _FACTS.get(entry, OWN)
            before = found.get(what := _as_sent(what, name, config), Left(0, 0))
            count, size = payload_of(single[entry]) if single else payload_of(*values.values())
            found[what] = Left(before.entries + count, before.size + size)
    return found


def _as_sent(what: str, name: str, config: Mapping[str, Any]) -> str:
    is_gradient = config.get(kinds.REPLY) == kinds.REPLY_GRADIENT and (name in _EITHER or name not in LEAVING)
    return GRADIENTS if what == MODELS and is_gradient else what


def named(text: object) -> frozenset[str]:
    """Return the names of an owner's list, with commas between them; ValueError for one that the table lacks."""
    found = frozenset(name for name in (part.strip() for part in str(text).split(",")) if name)
    if unknown := sorted(found - set(NAMES)):
        raise ValueError(f"{kinds.NEVER_SEND}={text}: {unknown[0]} is no kind of what leaves: {', '.join(NAMES)}")
    return found


def unanswered(patterns: Collection[str]) -> frozenset[str]:
    """Return the names of what none of the messages sends that a node answers; without patterns it answers all."""
    answered = {name for name in LEAVING if any(fnmatchcase(name, one) for one in patterns)}
    sent = {what for name in answered for what in LEAVING[name].values()}
    return frozenset(NAMES) - sent - {OWN, *([GRADIENTS] if answered & _EITHER else [])} if patterns else frozenset()


def refusal(never_send: Collection[str], sent: Collection[str]) -> str | None:
    """Return why a node that never sends something does not send all of this; None where it does."""
    forbidden = sorted(set(never_send) & set(sent))
    if not forbidden:
        return None
    return (
        f"the owner of this node does not let it send {', '.join(forbidden)}; run an algorithm that needs none, or "
        f"let the owner change {kinds.NEVER_SEND} in the node config, or what it answers"
    )
