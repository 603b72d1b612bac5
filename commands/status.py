"""`florets status` and `florets stop`: how far a run is and which clients are late, and its end after this round."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from florets.conf.problems import ConfigError
from florets.conf.saved import absolute
from florets.conf.schema import Config
from florets.reports.console import counted, duration, say, size
from florets.reports.folder import STOP, is_held, naming
from florets.reports.run_state import OVER, Contact, RunState, clients_of, runs_below, state_of
from florets.reports.tables import markdown_table

_MOST_RUNS = 20
_MOST_CLIENTS = 30


def status(folder: str = Config.results_dir, /) -> None:
    """Print how far a run is: round and phase, remaining time, last test, groups, and each client's last reply.

    Parameters
    ----------
    folder : str, optional
        The run's folder, or one of results with several runs, of which each gets a line; by default results.

    Notes
    -----
    Runs that have not begun, and nodes: ``flwr ls <connection>`` and ``flwr supernode list <connection>``.
    """
    for line in _folder(absolute(folder, Path.cwd())):
        say(line)


def _folder(folder: Path) -> Iterator[str]:
    found = runs_below(folder)
    if not found:
        raise ConfigError(f"{folder}: holds no run; name the folder of a run, or the one of all results.")
    if len(found) == 1:
        yield from lines_of(found[0])
        return
    for run in found[:_MOST_RUNS]:
        state = state_of(run)
        yield f"{run.relative_to(folder)}: {_words(state)}"
    if len(found) > _MOST_RUNS:
        yield f"and {counted(len(found) - _MOST_RUNS, 'older run')}"


def _words(state: RunState) -> str:
    # It may have ended without a word.
    if state.status not in OVER and not is_held(state.folder):
        # It knows torch.
        from florets.server_app.checkpoint import Checkpoints

        ended = f"No process is at work, after {counted(len(state.lines), 'round')}: it was killed, and "
        return ended + ("has no checkpoint." if Checkpoints(state.folder).newest() is None else "can go on.")
    asked = state.status not in OVER and (state.folder / STOP).exists()
    return f"{state.words} It was asked to stop after the current round." if asked else state.words


def lines_of(folder: Path) -> Iterator[str]:
    """Yield the lines about one run."""
    # It knows Flower, which a mistyped key need not wait for.
    from florets.server_app.progress import describe

    state = state_of(folder)
    yield f"{state.names} in {folder}".strip()
    yield _words(state) + (f" {state.reason}" if state.reason else "")
    if state.waiting:
        yield f"Log: {state.waiting}"
    if not state.lines:
        return
    line = state.lines[-1]
    yield f"Round {line['round']}: phase {line['phase']}, {duration(state.round_time or 0)} a round lately"
    if tested := [one for one in state.lines if one["evaluated"]]:
        yield f"Test of round {tested[-1]['round']}: {describe(tested[-1])}"
    sizes = ", ".join(map(str, line["cluster_sizes"]))
    yield f"Groups: {line['num_clusters']} (clients {sizes}), {'stable' if line['stable'] else 'not stable'}"
    down, up = (sum(line[way] for line in state.lines) for way in ("bytes_down", "bytes_up"))
    yield f"Traffic so far: {size(down)} down, {size(up)} up"
    yield from _clients(*clients_of(folder), line["round"])


def _clients(contacts: Mapping[str, Contact], clusters: Mapping[str, int], now: int) -> Iterator[str]:
    """Yield how many clients there are, and a table of those that are late or were not asked."""
    rows = [["client", "group", "last reply", "since then"]]
    for key, one in sorted(contacts.items()):
        words = []
        if one.failures:
            words.append(f"late for {counted(one.failures, 'round')} (last: {one.outcome})")
        if one.asked < now:
            words.append(f"not asked for {counted(now - one.asked, 'round')} (offline, or not sampled)")
        if words:
            answered = f"round {one.answered}" if one.answered else "none"
            rows.append([key, str(clusters.get(key, "")), answered, ", ".join(words)])
    late = sum(one.failures > 0 for one in contacts.values())
    yield f"Clients: {len(contacts)}, late: {late}"
    if len(rows) > 1:
        yield markdown_table(rows[: _MOST_CLIENTS + 1])


def stop(folder: str, /) -> None:
    """Let a run end after its current round, with checkpoint, models, tables and report.

    ``florets resume=<folder>`` goes on. To end a run at once, interrupt it (ctrl-C, SIGTERM, `flwr stop`): it keeps
    the checkpoint of its last whole round.

    Parameters
    ----------
    folder : str
        The run's own, or one of results with a single run in progress.
    """
    place = absolute(folder, Path.cwd())
    going_on = [run for run in runs_below(place) if is_held(run)]
    if len(going_on) != 1:
        others = (
            f"several runs are in progress ({', '.join(map(str, going_on))})" if going_on else "no run is in progress"
        )
        raise ConfigError(f"{place}: {others}; florets status <folder> shows its runs.")
    (run,) = going_on
    with naming(run / STOP):
        # Neither a file that is there nor where a link leads is written to.
        os.close(os.open(run / STOP, os.O_CREAT | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0), 0o600))
    say(f"The run ends after its current round: {run}")
