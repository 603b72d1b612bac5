"""The plain description of a task, as it travels from the server to its clients."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from florets.task.keys import from_plain

DECLARED, PREPARED, ROWS_OF = "declared", "prepared", "rows_of"
"""Entries of `table`: what the run declares, how tables are prepared, and whose rows of a common table."""

_SELDOM: Mapping[str, Any] = {
    "head_layers": [],
    "validation_fraction": 0.0,
    "drift": {},
    "table": {},
    "measure": "",
    "adapter": {},
}
"""Fields that are left out of the text where they have these values."""


@dataclass(frozen=True)
class TaskSpec:
    """All that a task depends on, in plain values: it travels to clients as JSON."""

    data: str
    partition: str
    model: str
    loss: str
    num_clients: int
    num_clusters: int
    """True clusters."""
    seed: int
    data_dir: str
    data_options: dict[str, Any] = field(default_factory=dict)
    partition_options: dict[str, Any] = field(default_factory=dict)
    model_options: dict[str, Any] = field(default_factory=dict)
    head_layers: list[str] = field(default_factory=list)
    """Name prefixes of the model's head, see `florets.task.layers.body_and_head`; none: as it has it."""
    validation_fraction: float = 0.0
    drift: dict[str, Any] = field(default_factory=dict)
    table: dict[str, Any] = field(default_factory=dict)
    """What is declared of tables, and how they are prepared, see `DECLARED`."""
    measure: str = ""
    """Import path of a further score; empty: none."""
    adapter: dict[str, Any] = field(default_factory=dict)
    """Options of the adapters; empty: the whole model is trained."""

    def to_json(self) -> str:
        """Return the description as JSON with sorted keys: equal tasks give equal texts."""
        values = asdict(self)
        for name in _SELDOM:
            # It travels with every message, and few tasks need it.
            if not values[name]:
                del values[name]
        return json.dumps(values, sort_keys=True)

    def at_node(self, data_dir: str, rows_of: str | None) -> "TaskSpec":
        """Return the description as a node with data of its own has it; its owner says whose rows it has."""
        table = {name: value for name, value in self.table.items() if name != ROWS_OF}
        table |= {} if rows_of is None else {ROWS_OF: rows_of}
        return replace(self, data_dir=str(Path(data_dir).expanduser()), table=table)

    @classmethod
    def from_json(cls, text: str) -> "TaskSpec":
        """Read what `to_json` wrote."""
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"the task's description is not JSON ({error}): {text[:80]!r}") from error
        if not isinstance(values, dict):
            raise ValueError(f"the task's description must be a JSON object, but is {text[:80]!r}")
        expected = {f.name for f in fields(cls)}
        values = {**_SELDOM, **values}
        unknown, missing = sorted(values.keys() - expected), sorted(expected - values.keys())
        if unknown or missing:
            raise ValueError(
                f"the task's description does not fit: unknown keys {unknown}, missing keys {missing}. "
                f"Server and clients must run the same version of the code."
            )
        return from_plain(cls, values, "the task's description: ")
