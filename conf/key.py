"""`key`: how a key of an experiment is declared."""

import dataclasses
from typing import Any, TypeVar

T = TypeVar("T")


def key(default: T, text: str) -> T:
    """Declare a key with its default and its help text.

    The declared return type is the value's and not `Field`, as that of `dataclasses.field` is.
    """
    if isinstance(default, list | dict):
        # The copy keeps two configurations from sharing one mutable default.
        field: Any = dataclasses.field(default_factory=default.copy, metadata={"help": text})
    else:
        field = dataclasses.field(default=default, metadata={"help": text})
    declared: T = field
    return declared
