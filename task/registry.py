"""Data sets, partitions and models by name: the built-in ones, and a user's own by import path.

Each is one function, whose parameters have the names below; all are passed by keyword, and so are its options:

========= ==================================================== =====================
kind      signature                                            returns
========= ==================================================== =====================
data      ``f(data_dir, seed, num_clusters, **options)``       `task.data.Dataset`
partition ``f(data, num_clients, num_clusters, rng, **options)`` list of `florets.task.partitions.Shard`
model     ``f(input_shape, num_outputs, **options)``           `torch.nn.Module`
========= ==================================================== =====================
"""

import difflib
import importlib
import inspect
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_type_hints

from florets.task.imported import Function, imported, other_parameters, with_torchvision
from florets.task.keys import Mismatch, convert

Kind = Literal["data", "partition", "model"]

# Parameters that the task fills in itself, by kind.
GIVEN: dict[Kind, list[str]] = {
    "data": ["data_dir", "seed", "num_clusters"],
    "partition": ["data", "num_clients", "num_clusters", "rng"],
    "model": ["input_shape", "num_outputs"],
}
# The functions of each module, which is imported when the first of them is asked for.
_BUILT_IN: dict[Kind, dict[str, tuple[str, ...]]] = {
    "data": {
        "florets.task.data.channels": ("channels", "cost2100"),
        "florets.task.data.public_images": (
            *("cifar10", "digits", "emnist", "fashion_mnist", "femnist", "mnist", "mnist_and_fashion"),
        ),
        "florets.task.data.own": ("own",),
        "florets.task.data.regression": ("linear", "lines"),
        "florets.task.data.sites": ("heart_disease", "schools"),
        "florets.task.data.texts": ("ag_news", "amazon_reviews"),
    },
    "partition": {
        "florets.task.partitions.composed": ("composed",),
        "florets.task.partitions.label_counts": ("label_counts", "n_way"),
        "florets.task.partitions.label_skew": (
            *("concept_shift", "label_skew_1", "label_skew_2", "label_skew_3", "label_skew_4"),
        ),
        "florets.task.partitions.natural": ("by_class", "natural", "random_clusters"),
        "florets.task.partitions.own": ("own",),
        "florets.task.partitions.rotation": (
            *("rotated_anchors", "rotation", "rotation_blocks", "rotation_mixture"),
        ),
    },
    "model": {
        "florets.task.models.autoencoders": ("autoencoder", "conv_autoencoder", "csi_autoencoder"),
        "florets.task.models.cnn": ("cifar_cnn", "cnn", "resnet18", "text_cnn"),
        "florets.task.models.mlp": ("linear", "mlp"),
    },
}
_MODULES = {
    kind: {name: module for module, of in modules.items() for name in of} for kind, modules in _BUILT_IN.items()
}
_DRAWN = ("channels", "digits", "linear", "lines")
"""Data sets that need no files."""


def reads_files(name: str) -> bool | None:
    """Return whether a data set is read from files in `data_dir`; None: not known, as of a function of the user's."""
    return None if name == "own" or ":" in name else name not in _DRAWN


def names(kind: Kind) -> list[str]:
    """Return the names of the built-in functions of a kind, sorted."""
    return sorted(_MODULES[kind])


def resolve(kind: Kind, name: str) -> Function:
    """Return the function of a built-in name or of an import path ``package.module:function``."""
    if ":" in name:
        return imported(f"task.{kind}={name!r}", name)
    if module := _MODULES[kind].get(name):
        function: Function = getattr(importlib.import_module(module), name)
        return function
    known = names(kind)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(
        f"task.{kind}={name!r} is unknown.{hint} Known: {', '.join(known)}. "
        f"A function of your own is given by its import path, package.module:function."
    )


class OwnCodeFailed(ValueError):
    """A function of the user's own failed; its text may quote data."""


def call(kind: Kind, name: str, given: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """Call the function of a name by keyword, after `check_options`, and return what it returns."""
    function = resolve(kind, name)
    options = check_options(function, options, kind, name)
    try:
        return with_torchvision(lambda: function(**given, **options))
    except Exception as error:  # a user's function may raise anything
        if ":" not in name:
            # The built-in functions explain their own problems; what they did not foresee may quote data.
            raise
        raise OwnCodeFailed(f"{kind} {name!r} failed with {type(error).__name__}: {error}") from error


def check_options(function: Function, options: Mapping[str, Any], kind: Kind, name: str) -> dict[str, Any]:
    """Check options against the function's signature; return them with one value as a list where it takes a list."""
    key, given = f"task.{kind}_options", GIVEN[kind]
    others = other_parameters(f"task.{kind}={name!r}", function, given)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in others)
    allowed = [p for p in others if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    allowed_names = [p.name for p in allowed]
    for option in options:
        if option in given or (option not in allowed_names and not takes_any):
            near = difflib.get_close_matches(option, allowed_names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"{key}.{option}: {kind} {name!r} has no such option.{hint} "
                f"Its options: {', '.join(allowed_names) or 'none'}."
            )
    for parameter in allowed:
        if parameter.default is parameter.empty and parameter.name not in options:
            raise ValueError(f"{key}.{parameter.name} is missing: {kind} {name!r} needs it.")
    hints, taken = _hints(function), dict(options)
    for option in options.keys() & hints.keys():
        try:
            taken[option] = convert(options[option], hints[option])
        except Mismatch:
            raise ValueError(
                f"{key}.{option}={options[option]!r}: {kind} {name!r} takes {_readable(hints[option])}."
            ) from None
        except TypeError:
            # A type that no key of a configuration has is the function's own to check.
            continue
    return taken


def check_ranges(kind: Kind, *rules: tuple[str, Any, bool, str]) -> None:
    """Raise ValueError for the first option whose rule does not hold: name, value, whether it holds, the rule."""
    for name, value, holds, rule in rules:
        if not holds:
            raise ValueError(f"task.{kind}_options.{name}={value} must be {rule}.")


def _hints(function: Function) -> dict[str, Any]:
    """Return the type hints of a function, or of what a class or another callable object is called by."""
    called: Any = function
    if isinstance(function, type):
        called = function.__init__  # type: ignore[misc]  # that of the very class
    elif not inspect.isroutine(function):
        called = type(function).__call__
    try:
        return get_type_hints(called)
    except (NameError, TypeError):
        # Written as text, with names that are known where it was written; or a callable of C's.
        return {}


def _readable(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")
