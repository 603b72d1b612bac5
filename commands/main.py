"""The `florets` command: one run, or with -m a sweep, of an experiment that Hydra composes."""

import logging
import os
import shlex
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from florets.commands import verbs
from florets.commands.verbs import VERBS
from florets.conf.extras import version
from florets.conf.problems import ConfigError, did_you_mean
from florets.conf.schema import as_plain
from florets.engines import engine
from florets.reports.clients import CLIENTS, read_clients
from florets.reports.console import say
from florets.reports.summary import RunSummary
from florets.studies import one_run
from florets.task.device import one_thread_for_good
from florets.task.imported import import_from

_FLAGS = {
    "-m": "sweep",
    "--multirun": "sweep",
    "-q": "quiet",
    "--quiet": "quiet",
    "--cfg": "show",
    "--continue": "keep",
    "--debug": "debug",
    "-h": "help",
    "--help": "help",
    "--version": "version",
}

_MOST_NAMED = 20

WORDS = tuple(sorted((*VERBS, "node")))


class Arguments(NamedTuple):
    """The command line, read: the overrides, and what the options ask for."""

    overrides: tuple[str, ...]
    options: frozenset[str]


def read_arguments(arguments: Sequence[str]) -> Arguments:
    """Return the command line, read."""
    options = [text for text in arguments if text.startswith("-")]
    if unknown := [text for text in options if text not in _FLAGS]:
        raise ConfigError(
            [
                f"{text}: there is no such option ({', '.join(_FLAGS)}).{did_you_mean(text, _FLAGS)}"
                for text in unknown
            ]
        )
    asked = frozenset(_FLAGS[text] for text in options)
    overrides = [text for text in arguments if not text.startswith("-")]
    return Arguments((*overrides, *(["quiet=true"] if "quiet" in asked else [])), asked)


def _end_in_order() -> list[int]:
    """Let SIGTERM and SIGHUP interrupt the main thread, as Ctrl-C does; the list gets the signal's number."""
    came = list[int]()

    def interrupt(number: int, _: object) -> None:
        # A second one ends the process at once.
        signal.signal(number, signal.SIG_DFL)
        came.append(number)
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):
        # `nohup` has the hang-up ignored, and some systems have none.
        if (number := getattr(signal, name, None)) and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    return came


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 when a run failed, 2 when keys were refused, 128 more than a signal's number."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # The package asked for one thread; this reaches a NumPy that the caller has loaded before it.
    one_thread_for_good()
    ended_by = _end_in_order() if threading.current_thread() is threading.main_thread() else []
    code = _exit_code_of(given)
    return 128 + ended_by[0] if ended_by and code else code


def _exit_code_of(given: Sequence[str]) -> int:
    """Do what the command line asks for, and return an exit code whatever happens."""
    if "--debug" in given:
        # A handler's traceback is a line of this level, and then in the run's log.
        logging.getLogger("florets").setLevel(logging.DEBUG)
    try:
        return _dispatch(given)
    except ConfigError as error:
        _complain(str(error), "--debug" in given)
        return 2
    except KeyboardInterrupt as interrupt:
        _complain(f"interrupted; {interrupt.args[0]}" if interrupt.args else "interrupted", False)
        return 130
    except BrokenPipeError:
        # `florets --help | head`: the reader has gone; Python must not fail again when it flushes at its end.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - it stays open until the process ends
        return 1
    except Exception as error:  # the command ends with a message and an exit code, whatever happens
        debug = "--debug" in given
        hint = "" if debug or one_run.is_foreseen(error) else " (--debug shows where)"
        _complain(f"the run failed: {one_run.explain(error)}{hint}", debug)
        return 1


def _dispatch(given: Sequence[str]) -> int:
    """Do what the first word says; without one, run what the keys describe."""
    word, rest = (given[0], [text for text in given[1:] if text != "--debug"]) if given else ("", [])
    if word in WORDS and {"-h", "--help"} & set(rest):
        print(help_on(word, _width()))
        return 0
    if word in VERBS:
        return verbs.run(word, rest)
    if word == "node":
        from florets.commands import node

        return node.main(rest)
    if word and not set(word) & set("-=") and (hint := did_you_mean(word, WORDS)):
        raise ConfigError(f"{word}: there is no such command.{hint}")
    if late := next((text for text in rest if text in WORDS), ""):
        others = shlex.join(text for text in given if text != late)
        raise ConfigError(f"{late}: a command's name comes first: florets {late} {others}")
    return _act(read_arguments(given))


def help_on(word: str, width: int = 110) -> str:
    """Return the help on a command, wrapped to `width` columns where it is written from a docstring."""
    if word in VERBS:
        return verbs.help_of(word, width)
    # It knows Flower.
    from florets.commands.node import HELP

    return HELP


def _width() -> int:
    return min(max(shutil.get_terminal_size().columns, 80), 120)


def _act(arguments: Arguments) -> int:
    """Do what the command line asks for."""
    caller = Path.cwd()
    import_from(caller)
    overrides, asked = arguments
    if "version" in asked:
        print(f"florets {version()}")
        return 0
    if "help" in asked:
        from florets.commands.help import help_text, strategy_help

        named = [text.removeprefix("strategy=") for text in overrides if text.startswith("strategy=")]
        print(strategy_help(named[-1], _width()) if named else help_text(_width()))
        return 0
    if "keep" in asked and "sweep" not in asked:
        raise ConfigError("--continue: goes on with a sweep and needs -m; a single run goes on with resume=<folder>.")
    if "sweep" in asked and any(text.startswith("resume=") for text in overrides):
        raise ConfigError("resume: goes on with one run; leave out -m and name the folder of that run.")
    if "show" in asked:
        config = one_run.prepare(overrides, caller)
        print(yaml.safe_dump(as_plain(config), sort_keys=False), end="")
        return 0
    if "sweep" in asked:
        from florets.studies.go_on import Engine
        from florets.studies.sweep.launch import run_sweep

        return run_sweep(overrides, caller, Engine(engine.run, engine.resume), "keep" in asked)[0]
    # Imported here: torch and Flower cost seconds, which `--help` and a mistyped key should not.
    from florets.api.run import run_overrides

    _print_summary(run_overrides(overrides))
    return 0


def _print_summary(summary: RunSummary) -> None:
    say(f"{summary.experiment}, {summary.strategy}, seed {summary.seed}: {one_run.headline(summary)}")
    if summary.discovery:
        say(f"Discovery: {summary.discovery}")
    if groups := _groups(Path(summary.folder)):
        say(f"Groups: {groups}")
    say(f"Results: {summary.folder}")


def _groups(folder: Path) -> str:
    """Return which sites are in which of several groups, where the clients have names and are not very many."""
    if not (folder / CLIENTS).is_file():
        return ""
    members: dict[int, list[str]] = {}
    for row in read_clients(folder):
        if row.found_cluster is not None:
            members.setdefault(row.found_cluster, []).append(row.client)
    names = [name for own in members.values() for name in own]
    if len(members) < 2 or len(names) > _MOST_NAMED or all(map(str.isdecimal, names)):
        return ""
    return "; ".join(f"{group}: {', '.join(own)}" for group, own in sorted(members.items()))


def _complain(text: str, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    say(f"florets: {text}", sys.stderr)
