"""Checkpoints of a run: one file for each, whole or not there at all, from which the run can go on.

A checkpoint is a safetensors file: the arrays of the models and of the strategy's state, and in the file's metadata
the rest as JSON, with a SHA-256 of everything. Nothing is pickled.
"""

import dataclasses
import hashlib
import json
import logging
import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from safetensors import safe_open

from florets.conf.consent import imported_functions
from florets.conf.saved import resume_command
from florets.conf.schema import Config, as_plain
from florets.reports.folder import make_inside, whole_file, write_arrays
from florets.strategies.base.encoding import Arrays, decode, encode
from florets.strategies.base.report import Client, State
from florets.strategies.base.strategy import Strategy

log = logging.getLogger("florets")

FOLDER = "checkpoint"
VERSION = 7
KEPT = 2
"""Newest checkpoints that stay."""
_CLIENT = tuple(field.name for field in dataclasses.fields(Client))

_NAME = re.compile(r"round-(\d{6,})\.safetensors")


class CheckpointError(RuntimeError):
    """A run cannot go on from its checkpoints; the text says which file, why, and what to do."""


@dataclass(frozen=True)
class Best:
    """The round after which a run's models were best, with its models and the strategy's state then."""

    server_round: int
    models: ArrayRecord
    state: State


@dataclass(frozen=True)
class Checkpoint:
    """A run after its last completed round: the K models that it ended with, and all that the strategy remembers.

    `clients` are all seen so far, of whom some may be offline when the run goes on; the list is not changed. `best`
    is the round that a run with `patience` would end with, and `frozen` the hash of what the model freezes.
    """

    server_round: int
    models: ArrayRecord
    state: State
    clients: list[Client]
    config: dict[str, Any]
    best: Best | None = None
    frozen: str = ""


class Checkpoints:
    """The checkpoints of a run, in its `checkpoint/`; the `KEPT` newest stay."""

    def __init__(self, run_folder: Path) -> None:
        self.folder = run_folder / FOLDER
        # The clients that were last written, and their text: of 100,000 it takes as long as a round of 1,000.
        self._clients: list[Client] = []
        self._text = ""

    def files(self) -> list[Path]:
        """Return the files, newest first."""
        found = [path for path in self.folder.glob("round-*.safetensors") if _NAME.fullmatch(path.name)]
        return sorted(found, key=_round, reverse=True)

    def newest(self) -> int | None:
        """Return the round of the newest file, which may be damaged; None where there is no file."""
        files = self.files()
        return _round(files[0]) if files else None

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint; killed at any moment, this leaves the earlier ones as they were.

        TypeError where the strategy remembers something that a checkpoint cannot hold.
        """
        make_inside(self.folder)
        found = checkpoint.clients
        if not self._text or len(found) != len(self._clients) or not all(map(operator.is_, found, self._clients)):
            # By column: `dataclasses.asdict` takes longer for 25,000 clients than a round of a hundred of them.
            ordered = sorted(found, key=lambda client: client.key)
            self._text = json.dumps({name: [*map(operator.attrgetter(name), ordered)] for name in _CLIENT})
            self._clients = found
        path = self.folder / f"round-{checkpoint.server_round:06d}.safetensors"
        # The name only ever stands for a whole file.
        with whole_file(path, "wb") as file:
            write_arrays(file, *_pack(checkpoint, self._text))
        for old in self.files()[KEPT:]:
            old.unlink()
        return path

    def load(self, strategy: type[Any] | None = None) -> Checkpoint | None:
        """Return the newest checkpoint that can be read; None where there is no file at all.

        `strategy` is the class of the run's strategy, of whose package dataclasses are built (`base.encoding`).
        CheckpointError if there are files but none can be read.
        """
        problems = []
        for path in self.files():
            try:
                checkpoint = _read(path, strategy)
            except (CheckpointError, OSError) as error:
                problems.append(str(error))
                continue
            # A file from anywhere: what a damaged or made-up one raises is not all safetensors' or json's own.
            except Exception as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
                problems.append(f"checkpoint {path} is damaged, or does not fit this release of florets ({reason})")
                continue
            for problem in problems:
                log.warning("%s; the one of round %d is taken", problem, checkpoint.server_round)
            return checkpoint
        if problems:
            raise CheckpointError(f"{'; '.join(problems)}. There is no other one: run the experiment again")
        return None

    def drop_after(self, server_round: int) -> None:
        """Remove what lies after a round: files that could not be read, and those half written."""
        if self.folder.is_dir():
            make_inside(self.folder)
        for path in self.files():
            if _round(path) > server_round:
                path.unlink()
        for path in self.folder.glob("*.part"):
            path.unlink()


def _round(path: Path) -> int:
    return int(path.name[6:-12])


def _pack(checkpoint: Checkpoint, clients: str) -> tuple[Arrays, dict[str, str]]:
    arrays: Arrays = {}
    content = {
        "version": VERSION,
        "round": checkpoint.server_round,
        "config": checkpoint.config,
        "frozen": checkpoint.frozen,
        "models": encode(checkpoint.models, arrays, "models"),
        "state": encode(checkpoint.state, arrays),
        "best": None if (best := checkpoint.best) is None else encode(vars(best), arrays, "best"),
    }
    text = f'{json.dumps(content)[:-1]}, "clients": {clients}}}'
    return arrays, {"checkpoint": text, "sha256": _digest(text, arrays)}


def _read(path: Path, strategy: type[Any] | None) -> Checkpoint:
    with safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    text = metadata.get("checkpoint", "")
    if not text:
        raise CheckpointError(f"{path} is no checkpoint of florets")
    if metadata.get("sha256") != _digest(text, arrays):
        raise CheckpointError(f"checkpoint {path} is damaged (its SHA-256 is not the one that was written)")
    content = json.loads(text)
    if content.get("version") != VERSION:
        raise CheckpointError(
            f"checkpoint {path} has version {content.get('version')}, this is version {VERSION}; run the experiment "
            "again, or use the release of florets that wrote it"
        )
    state, server_round, config = decode(content["state"], arrays, strategy), content["round"], content["config"]
    if type(server_round) is not int or not isinstance(config, dict) or not isinstance(state, State):
        raise ValueError("its round, configuration or state is of another type")
    best = content["best"]
    return Checkpoint(
        server_round=server_round,
        models=decode(content["models"], arrays),
        state=state,
        clients=[
            Client(**dict(zip(_CLIENT, values, strict=True)))
            for values in zip(*(content["clients"][name] for name in _CLIENT), strict=True)
        ],
        config=config,
        frozen=str(content["frozen"]),
        best=None if best is None else Best(**decode(best, arrays, strategy)),
    )


def _digest(text: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    digest = hashlib.sha256(text.encode())
    for name, values in sorted(arrays.items()):
        digest.update(f"{name} {values.dtype} {values.shape}".encode())
        digest.update(np.require(values, requirements="C").data)
    return digest.hexdigest()


class Checkpointing:
    """Writes a checkpoint every `checkpoint_every` rounds, and of the last good round where a run ends in failure.

    The run goes on from the checkpoint `start`; with `by_flower` its command is `flwr run`. Set `best`, what a run
    with `patience` would end with, before `after`. `frozen` is that of `Checkpoint`.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        config: Config,
        strategy: Strategy[Any, Any],
        start: Checkpoint | None,
        by_flower: bool = False,
        frozen: str = "",
    ) -> None:
        self._checkpoints, self._every, self._frozen = checkpoints, config.checkpoint_every, frozen
        self._config, self._strategy, self._by_flower = config, strategy, by_flower
        self.best: Best | None = None if start is None else start.best
        self._last: tuple[int, ArrayRecord] | None = None
        self._saved = start.server_round if start is not None else 0
        checkpoints.drop_after(self._saved)

    def after(self, server_round: int, models: ArrayRecord) -> None:
        """Note a round that has ended; write its checkpoint where one is due."""
        self._last = (server_round, models)
        if self._every and server_round % self._every == 0:
            self._save(server_round, models)

    def last(self) -> str:
        """Write the checkpoint of the last good round where it is missing, and return how the run can go on from it.

        This text joins that of what ended the run, so what goes wrong here is logged and not raised.
        """
        if self._every and self._last is not None and self._last[0] != self._saved:
            # The round that failed has left no trace: the strategy's state is that of the last good one.
            try:
                self._save(*self._last)
            except OSError as error:
                log.warning("the checkpoint of round %d could not be written: %s", self._last[0], error)
        return self.how_to_go_on()

    def drop(self) -> None:
        """Remove all checkpoints: the run cannot go on, and the same command may replace it."""
        self._checkpoints.drop_after(0)

    def how_to_go_on(self, when: str = "once the cause is gone, ") -> str:
        """Return how, and `when`, the run can go on from its last checkpoint."""
        if not self._every:
            return "The run has no checkpoint (checkpoint_every=0)"
        if not self._saved:
            return "No round was completed: once the cause is gone, run it again"
        folder, trust = self._checkpoints.folder.parent, bool(imported_functions(self._config))
        command = resume_command(folder, trust, self._by_flower)
        return f"Round {self._saved} is saved; {when}go on with: {command}"

    def _save(self, server_round: int, models: ArrayRecord) -> None:
        strategy = self._strategy
        clients, config = list(strategy.federation.clients.values()), as_plain(self._config)
        found = Checkpoint(server_round, models, strategy.state, clients, config, self.best, self._frozen)
        self._checkpoints.save(found)
        self._saved = server_round
