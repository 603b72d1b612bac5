"""Data sets, partitions and models by name: the built-in ones, and a user's own by import path.

Each is one function. What it is called with comes first in its signature, its options follow by name:

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
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from florets.task.operators import with_torchvision

Kind = Literal["data", "partition", "model"]
Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

# How many leading parameters the task fills in itself, by kind.
_NUM_GIVEN: dict[Kind, int] = {"data": 3, "partition": 4, "model": 2}
# Importing these packages registers what is built in.
_BUILT_IN: dict[Kind, str] = {
    "data": "florets.task.data",
    "partition": "florets.task.partitions",
    "model": "florets.task.models",
}
_registered: dict[Kind, dict[str, Function]] = {"data": {}, "partition": {}, "model": {}}
_of_files: dict[str, bool | None] = {}


def register_data(name: str, *, files: bool | None = None) -> Callable[[F], F]:
    """Register the decorated function as the data set `name`.

    Parameters
    ----------
    files
        True: all of it is read from files in `data_dir`; False: it never looks there; None: it is not known.
    """
    _of_files[name] = files
    return _register("data", name)


def reads_files(name: str) -> bool | None:
    """Return whether a data set is read from files, None where nobody knows, as of a function of the user's own."""
    names("data")
    return _of_files.get(name)


def register_partition(name: str) -> Callable[[F], F]:
    """Register the decorated function as the partition `name`."""
    return _register("partition", name)


def register_model(name: str) -> Callable[[F], F]:
    """Register the decorated function as the model `name`."""
    return _register("model", name)


def _register(kind: Kind, name: str) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        there = _registered[kind].get(name)
        # Compared by origin, so that reloading a module is no clash.
        if there is not None and (there.__module__, there.__qualname__) != (
            function.__module__,
            function.__qualname__,
        ):
            raise ValueError(
                f"{kind} {name!r} is already registered by {there.__module__}.{there.__qualname__}: "
                f"choose another name for {function.__module__}.{function.__qualname__}"
            )
        _registered[kind][name] = function
        return function

    return decorate


def names(kind: Kind) -> list[str]:
    """Return the registered names of a kind, sorted."""
    importlib.import_module(_BUILT_IN[kind])
    return sorted(_registered[kind])


def resolve(kind: Kind, name: str) -> Function:
    """Return the function of a registered name or of an import path ``package.module:function``.

    Raises
    ------
    ValueError
        If the name is not registered, or the import path leads to no function.
    """
    if ":" in name:
        return _imported(kind, name)
    known = names(kind)
    if name in _registered[kind]:
        return _registered[kind][name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(
        f"task.{kind}={name!r} is unknown.{hint} Known: {', '.join(known)}. "
        f"A function of your own is given by its import path, package.module:function."
    )


def _imported(kind: Kind, path: str) -> Function:
    module_name, _, attribute = path.partition(":")
    where = f"task.{kind}={path!r}"
    try:
        module = with_torchvision(lambda: importlib.import_module(module_name))
    except Exception as error:  # a module of the user's own may raise anything while it is imported
        raise ValueError(
            f"{where}: module {module_name!r} cannot be imported ({type(error).__name__}: {error}). "
            f"The form is package.module:function, with the package on Python's path."
        ) from error
    function = getattr(module, attribute, None)
    if not callable(function):
        raise ValueError(f"{where}: module {module_name!r} has no function {attribute!r}.")
    return function  # type: ignore[no-any-return]  # getattr knows no type; callable() was checked


def check_options(function: Function, options: Mapping[str, Any], kind: Kind, name: str) -> None:
    """Check options against the function's signature, so that a wrong one is named before work starts.

    Parameters
    ----------
    function
        What `resolve` returned.
    options
        The keyword options that it would be called with.
    kind, name
        For the message.

    Raises
    ------
    ValueError
        If the function takes no such option, misses one, or a value does not fit its annotation.
    """
    key = f"task.{kind}_options"
    parameters = list(inspect.signature(function).parameters.values())
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    given = _NUM_GIVEN[kind]
    if len(positional) < given and not any(p.kind is p.VAR_POSITIONAL for p in parameters):
        raise ValueError(
            f"{kind} {name!r} takes {len(positional)} positional parameters, but is called with {given}: "
            f"see the signatures in task/registry.py."
        )
    fixed = {p.name for p in positional[:given]}
    allowed = [p for p in parameters if p.name not in fixed and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    allowed_names = [p.name for p in allowed]
    for option in options:
        if option in fixed or (option not in allowed_names and not takes_any):
            near = difflib.get_close_matches(option, allowed_names, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ValueError(
                f"{key}.{option}: {kind} {name!r} has no such option.{hint} "
                f"Its options: {', '.join(allowed_names) or 'none'}."
            )
    for parameter in allowed:
        if parameter.default is parameter.empty and parameter.name not in options:
            raise ValueError(f"{key}.{parameter.name} is missing: {kind} {name!r} needs it.")
    hints = get_type_hints(function)
    for option, value in options.items():
        if option in hints and not _fits(value, hints[option]):
            raise ValueError(
                f"{key}.{option}={value!r} does not fit {kind} {name!r}: it takes {_readable(hints[option])}."
            )


def _fits(value: Any, hint: Any) -> bool:
    """Say whether a plain value (as JSON has them) fits a type hint; hints of other kinds accept all."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return value in arguments
    if origin is Union or type(hint).__name__ == "UnionType":
        return any(_fits(value, argument) for argument in arguments)
    if isinstance(origin, type) and isinstance([], origin):  # list[int], Sequence[float]
        return isinstance(value, (list, tuple)) and all(_fits(v, a) for v in value for a in arguments[:1])
    if hint in (int, float) and isinstance(value, bool):
        return False
    if hint is float:
        return isinstance(value, (int, float))
    if hint in (int, bool, str, type(None)):
        return isinstance(value, hint)
    return True


def _readable(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")
