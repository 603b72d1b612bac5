"""The command `florets plan`: what a run will send, need and take, told before it is run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.engines import jobs
from florets.engines.jobs import num_workers
from florets.engines.own_nodes import own_nodes
from florets.engines.pool import LoadClientSide
from florets.reports.console import counted, duration, number, say, size
from florets.reports.tables import markdown_table
from florets.server_app.plan.dry_run import DryRun, dry_run
from florets.server_app.plan.plan import Plan, plan_of
from florets.strategies.registry import find_strategy

SECONDS = 20.0

HELP = f"""florets plan [experiment=<preset>] [key=value ...] [--seconds <n>] [--json]
  Tell what a run sends, how long it takes and what memory it needs, before it is run. The strategy runs its rounds
  against clients of which some 16 compute and the others repeat what those have said; nothing is written. After
  --seconds ({SECONDS:g}) the remaining rounds are taken to go on as those before; two rounds are run in any case, and
  with --seconds 0 no more.

  Messages and bytes are those of a run in which every client replies: payload of arrays, numbers and texts, without
  what Flower adds. Seconds and memory are estimates from this machine. engine=flwr plans for clients in processes
  of their own, which keep no models from one message to the next. --json prints the same for programs."""


def main(arguments: Sequence[str], caller: Path, load: LoadClientSide) -> int:
    """Run the command and return its exit code.

    Parameters
    ----------
    arguments
        `key=value` texts, as for a run, and options.
    caller
        The working directory that relative folders are meant from.
    load
        Brings the ClientApp.

    Raises
    ------
    ConfigError
        If a key or an option is wrong, or the run would be refused.
    """
    if {"-h", "--help"} & set(arguments):
        print(HELP)
        return 0
    seconds, overrides = _seconds([text for text in arguments if text not in ("--debug", "--json")])
    if wrong := [text for text in overrides if text.startswith("-")]:
        raise ConfigError([f"{wrong[0]}: florets plan has no such option (--json, --seconds <n>)."])
    config = jobs.prepare(overrides, caller)
    # Refused before the dry run, as before a run.
    num_workers(config.workers, len(own_nodes(config)) or config.num_clients)
    found = dry_run(config, load(), seconds)
    plan = plan_of(found, config.eval_every)
    if "--json" in arguments:
        say(json.dumps(as_plain(config, found, plan), indent=1))
        return 0
    for line in lines(config, found, plan):
        say(line)
    return 0


def _seconds(arguments: Sequence[str]) -> tuple[float, list[str]]:
    """Return the seconds that a dry run may take, and the other arguments."""
    rest, given = [], None
    texts = iter(arguments)
    for text in texts:
        if text == "--seconds":
            given = next(texts, "")
        elif text.startswith("--seconds="):
            given = text.removeprefix("--seconds=")
        else:
            rest.append(text)
    if given is None:
        return SECONDS, rest
    try:
        seconds = float(given)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ConfigError(
            [f"--seconds {given}: must be a finite number of at least 0, such as --seconds {SECONDS:g}."]
        )
    return seconds, rest


def lines(config: Config, found: DryRun, plan: Plan) -> list[str]:
    """Return what the terminal shows."""
    models = f"{counted(found.num_models, 'model')} of {number(found.num_parameters)} parameters"
    name = find_strategy(config.strategy.name).label
    told = [
        f"{config.experiment}, {name}, seed {config.seed}: {counted(found.num_clients, 'client')}, "
        f"{models} ({size(found.model_bytes)} each), {counted(plan.num_rounds, 'round')}",
        "",
        markdown_table(rows(plan)),
        "",
    ]
    if plan.dry_rounds < plan.num_rounds:
        told.append(f"Rounds 1 to {plan.dry_rounds} were run dry; the others are taken to go on like them.")
    if plan.timed_once:
        told.append(
            "Of some rounds only the first of their kind was run, which also loads what the later ones have at hand: "
            "these times may be too high. --seconds <n> runs more of them."
        )
    kinds = [part for part in plan.parts if part.first]
    if len({part.name for part in kinds}) > 1:
        most = size(plan.most_down), size(plan.most_up)
        told.append(
            "The real clients may take longer from phase to phase than these few: if all rounds cost as much as the "
            f"costliest, the total would be {most[0]} down and {most[1]} up."
        )
    workers = num_workers(config.workers, found.num_clients)
    local = duration(plan.local_seconds(workers))
    if config.engine == "ray":
        told.append(
            "engine=ray: bytes are those of its run; times are this machine's, and the cluster was not asked."
        )
    handed = " (handing messages to the workers is not in it)" if workers > 1 else ""
    told.append(
        f"Time, about: {local} in process with workers={workers}, batch_clients={config.batch_clients}{handed};"
    )
    told.append(
        f"  {duration(plan.deployed_seconds)} where each client has a machine like this one, and on top of that what "
        f"Flower takes for {counted(plan.exchanges, 'exchange')}."
    )
    if plan.server_memory is None or plan.local_memory is None or plan.client_memory is None:
        told.append("Memory: not known on this system (it needs Linux).")
    else:
        each = f", and up to {size(plan.client_memory)} more for each of the workers" if workers > 1 else ""
        told.append(
            f"Memory, about: {size(plan.local_memory)} in process{each}; {size(plan.server_memory)} the server "
            f"alone, {size(plan.client_memory)} a client of its own."
        )
    return told


def rows(plan: Plan) -> list[list[str]]:
    """Return the table of the run's parts, its head first; figures are of one time, those of the total of all."""
    head = ["each time", "times", "from round", "asks", "messages", "down", "up", "clients' work", "server's"]
    table = [head]
    for part in plan.parts:
        table.append(
            [
                part.name,
                str(part.times),
                str(part.first) if part.first else "",
                " + ".join(part.asks),
                f"{part.messages:g}",
                size(part.down),
                size(part.up),
                duration(part.client_seconds),
                duration(part.server_seconds) if part.first else "",
            ]
        )
    table.append(
        [
            "total",
            "",
            "",
            counted(plan.exchanges, "exchange"),
            f"{plan.total('messages'):g}",
            size(plan.total("down")),
            size(plan.total("up")),
            duration(plan.total("client_seconds")),
            duration(plan.total("server_seconds")),
        ]
    )
    return table


def as_plain(config: Config, found: DryRun, plan: Plan) -> dict[str, Any]:
    """Return the plan as plain values for JSON: bytes and seconds."""
    workers = num_workers(config.workers, found.num_clients)
    names = ("messages", "down", "up", "client_seconds", "server_seconds")
    return {
        "experiment": config.experiment,
        "strategy": find_strategy(config.strategy.name).label,
        "seed": config.seed,
        "clients": found.num_clients,
        "models": found.num_models,
        "parameters": found.num_parameters,
        "rounds": plan.num_rounds,
        "dry_rounds": plan.dry_rounds,
        "parts": [asdict(part) for part in plan.parts],
        "total": {"exchanges": plan.exchanges, **{name: plan.total(name) for name in names}},
        "most": {"down": plan.most_down, "up": plan.most_up},
        "seconds": {"workers": workers, "in_process": plan.local_seconds(workers), "deployed": plan.deployed_seconds},
        "memory": {"server": plan.server_memory, "in_process": plan.local_memory, "client": plan.client_memory},
    }
