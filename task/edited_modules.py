"""Modules of the user's own that are edited while Python runs: the next run imports them anew.

Once a noted file has changed, its package and those that import it are forgotten, imported again, and put into the
module objects that others hold.
"""

import importlib
import sys
from collections.abc import Iterable

from florets.task import fingerprint, given

_noted: dict[str, dict[str, str]] = {}
"""Hashes of the files of each package."""
_paths: set[str] = set()


def note(paths: Iterable[str]) -> None:
    """Remember the files behind import paths as they are now, where they are not imported yet."""
    new = [path for path in paths if _is_path(path)]
    _paths.update(new)
    for package, files in fingerprint.own_files(new).items():
        if package not in _noted or package not in sys.modules:
            _noted[package] = files


def reload_edited() -> list[str]:
    """Import modules anew whose files, or those of modules that they import, have changed; return the packages."""
    note(_paths)
    now = fingerprint.own_files(_paths)
    changed = {package for package, files in now.items() if files != _noted[package]}
    if not changed:
        return []
    importers = fingerprint.importers(_paths)
    waiting = list(changed)
    while waiting:
        more = importers.get(waiting.pop(), set()) - changed
        changed |= more
        waiting += more
    old = {name: module for name, module in list(sys.modules.items()) if name.partition(".")[0] in changed and module}
    for name, module in old.items():
        # Python takes compiled code for new that is of the same second and of a source as long.
        fingerprint.forget_compiled(module)
        del sys.modules[name]
    importlib.invalidate_caches()
    fingerprint.forget()
    given.read_again()
    _noted.update(now)
    for name, module in old.items():
        try:
            new = importlib.import_module(name)
        except Exception:  # it is anybody's code, and raises this again where it is used
            continue
        module.__dict__.clear()
        module.__dict__.update(new.__dict__)
    return sorted(changed)


def _is_path(text: str) -> bool:
    module, colon, name = text.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))
