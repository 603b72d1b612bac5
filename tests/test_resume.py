"""Interrupted runs go on: equal to the bit, and never from a checkpoint that is not theirs or not whole."""

import csv
import json
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import yaml
from safetensors.numpy import load_file

from florets.commands import main as command
from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.overrides import read_overrides
from florets.conf.problems import ConfigError
from florets.conf.run_config import config_to_json
from florets.conf.saved import resume_command
from florets.engines import engine
from florets.reports.folder import FolderLock
from florets.server_app import checkpoint as module
from florets.server_app.app import read_run_config
from florets.server_app.checkpoint import VERSION, Checkpoint, CheckpointError, Checkpointing, Checkpoints
from florets.server_app.resume import read_resume
from florets.strategies import STRATEGIES
from florets.strategies.base.encoding import encode
from florets.strategies.base.report import State
from florets.strategies.core import BoolArray, FloatArray, IntArray, quarantine
from tests.fakes import models
from tests.flower_tools import parse_config_args

ROOT = Path(__file__).resolve().parents[1]
# Two groups of three clients.
SMALL = (
    "num_clients=6", "task.num_clusters=2", "train.batch_size=1000", "train.learning_rate=0.03",
    "task.model_options.hidden=[8]", "strategy.fraction_train=0.7", "quiet=true",
)  # fmt: skip


SAME_BYTES = (
    "clients.csv", "loss_matrix.csv", "models.safetensors", "clusters.safetensors", "own_models.safetensors",
    "tests.json", *(f"embeddings/{server_round}.npz" for server_round in range(1, 7)),
)  # fmt: skip


class Killed(BaseException):
    """What stands in for SIGKILL in process: nothing catches it."""


def settings(strategy: str, *more: str) -> list[str]:
    defaults = {"k": "2", "num_rounds": "6"} | ({"strategy.stability_rounds": "2"} if strategy == "clove" else {})
    if strategy == "two_phase":
        defaults |= {"num_rounds": "3", "strategy.moment_rounds": "3", "strategy.subspace_clients": "4"}
        # Moments of a network cost many times those of a linear classifier.
        defaults |= {"task.model_options.hidden": "[]"}
    if strategy == "fedgwc":
        # At most half of the clients a round.
        defaults |= {"strategy.fraction_train": "0.5"}
    given = {text.partition("=")[0] for text in more}
    small = [text for text in SMALL if text.partition("=")[0] not in defaults]
    return [*small, f"strategy={strategy}", *more, *(f"{k}={v}" for k, v in defaults.items() if k not in given)]


@contextmanager
def killed_after(monkeypatch: pytest.MonkeyPatch, server_round: int) -> Iterator[None]:
    """Let the run within stop dead once the given round's checkpoint is written."""
    after = Checkpointing.after

    def last_words(self: Checkpointing, done: int, models: Any) -> None:
        after(self, done, models)
        if done == server_round:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointing, "after", last_words)
        with pytest.raises(Killed):
            yield


def killed(monkeypatch: pytest.MonkeyPatch, folder: Path, overrides: Sequence[str], server_round: int) -> Path:
    """Run until the given round's checkpoint is written, then stop dead; return the run's folder."""
    given = [*overrides, f"results_dir={folder}"]
    with killed_after(monkeypatch, server_round):
        engine.run(compose(given), given)
    return run_folder(folder)


def with_copies(
    monkeypatch: pytest.MonkeyPatch, folder: Path, overrides: Sequence[str], rounds: Sequence[int]
) -> tuple[Path, list[Path]]:
    """Run to the end; return the run's folder, and what SIGKILL would have left of it after each of some rounds."""
    after, copies = Checkpointing.after, [folder / f"killed-{server_round}" for server_round in rounds]

    def copy(self: Checkpointing, done: int, models: Any) -> None:
        after(self, done, models)
        if done in rounds:
            shutil.copytree(run_folder(folder / "whole"), folder / f"killed-{done}")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpointing, "after", copy)
        whole = straight(folder / "whole", overrides)
    return whole, copies


def run_folder(folder: Path) -> Path:
    (marker,) = folder.rglob("rounds.jsonl")
    return marker.parent


def straight(folder: Path, overrides: Sequence[str]) -> Path:
    given = [*overrides, f"results_dir={folder}"]
    return Path(engine.run(compose(given), given).folder)


def resumed(folder: Path, *more: str) -> Path:
    found = read_resume([f"resume='{folder}'", *more], ROOT)
    assert found is not None
    return Path(engine.resume(*found).folder)


def results(folder: Path) -> dict[str, Any]:
    """Return all that two equal runs have in common: everything but times and places."""
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    summary = json.loads((folder / "summary.json").read_text())
    for timed in (*lines, summary):
        timed["seconds"] = timed["client_seconds"] = timed["folder"] = None
    models = load_file(folder / "models.safetensors")
    with (folder / "clients_over_rounds.csv").open(newline="") as file:
        rows = [{**row, "seconds": None} for row in csv.DictReader(file)]
    return {
        "lines": lines,
        "rows": rows,
        "summary": summary,
        "files": sorted(path.name for path in folder.iterdir()),
        "checkpoints": [path.name for path in Checkpoints(folder).files()],
        "models": {name: (values.dtype, values.shape, values.tobytes()) for name, values in models.items()},
        **{name: (folder / name).read_bytes() for name in SAME_BYTES if (folder / name).is_file()},
    }


TWICE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cfl_s", ("strategy.mean_threshold=1", "strategy.client_threshold=0", "strategy.first_split=2")),
    ("local", ()),
    ("ditto", ("strategy.proximal_lambda=0.5",)),
    ("per_fedavg", ("train=sgd", "strategy.alpha=0.1", "strategy.exact_hessian=true")),
    ("fedproto", ("strategy.prototype_lambda=0.5",)),
    ("fedala", ()),
    ("fedpac", ()),
    ("fedem", ()),
    ("fedrc", ()),
    ("fedsoft", ("strategy.proximal_lambda=1",)),
    ("feddrift", ("strategy.period=1", "task.drift.rounds=[3]")),
    ("fedgwc", ()),
    ("stocfl", ("strategy.tau=0.3",)),
    ("fesem", ()),
    ("flexcfl", ()),
    ("pacfl", ("strategy.vectors=1",)),
    ("fedclust", ()),
    ("sr_fca", ()),
    ("clove", ("personal=intercept", "eval_clients=participants")),
    ("fedavg", ("personal=slopes", "eval_clients=participants")),
    # All that layers and starts remember.
    ("clove", ("strategy.memory=true", "strategy.probes=2", "robust=median")),
    ("ifca", ("robust=clip",)),
)
"""Strategies that are killed twice with few participants, each with settings that make it keep more than usual."""

BRIEFLY = ("clove", "cfl_gp", "two_phase", "discovery")
"""Strategies whose killed run goes on in the default suite; those of the others are slow tests, if not `TWICE`."""


@pytest.mark.parametrize(
    "strategy",
    [
        *BRIEFLY,
        *(pytest.param(name, marks=pytest.mark.slow) for name in STRATEGIES if name not in {*BRIEFLY, *dict(TWICE)}),
    ],
)
def test_every_strategy_goes_on_as_if_it_had_never_been_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    """A field that a strategy forgets to save shows here, be its clustering frozen when it is killed or not."""
    kept = {"clove": (2, 5), "cfl_gp": (2, 5), "two_phase": (2, 4), "flux": (3, 5)}
    given = settings(strategy, *(() if strategy in kept else ("num_rounds=4",)))
    folder, copies = with_copies(monkeypatch, tmp_path, given, kept.get(strategy, (2,)))
    whole = results(folder)
    if strategy == "clove":
        # It freezes its clusters in round 4: the second time they are in the checkpoint.
        assert [line["stable"] for line in whole["lines"]] == [False] * 4 + [True] * 2
    for copy in copies:
        assert results(resumed(copy)) == whole


def test_a_run_with_somebody_in_quarantine_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def verdicts(gram: FloatArray, trusted: BoolArray) -> tuple[IntArray, FloatArray]:
        """Say that the first member of every group departs."""
        return np.where(np.arange(len(gram)) == 0, quarantine.DEPARTS, quarantine.AGREES), np.zeros(len(gram))

    monkeypatch.setattr(quarantine, "verdicts", verdicts)
    given = [text for text in settings("clove", "robust=median") if "fraction_train" not in text]
    folder, copies = with_copies(monkeypatch, tmp_path, given, (2, 4))
    whole = results(folder)
    assert ["quarantine" in line["details"] for line in whole["lines"]] == [False] * 2 + [True] * 4
    for copy in copies:
        assert results(resumed(copy)) == whole


@pytest.mark.parametrize(
    ("strategy", "own"), [TWICE[0], *(pytest.param(*given, marks=pytest.mark.slow) for given in TWICE[1:])]
)
def test_what_few_participants_and_their_groups_have_survives_two_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, own: tuple[str, ...]
) -> None:
    """Three of ten clients a round: most of what is kept was made before a kill, and is needed after it."""
    replaced = ("num_clients", "strategy.fraction_train", "train.local_epochs")
    given = [text for text in settings(strategy, *own, "num_rounds=8") if not text.startswith(replaced)]
    given += ["num_clients=10", "strategy.fraction_train=0.3", "train.local_epochs=3"]
    whole = results(straight(tmp_path / "whole", given))
    folder = killed(monkeypatch, tmp_path / "killed", given, 2)
    with killed_after(monkeypatch, 4):
        resumed(folder)
    assert results(resumed(folder)) == whole
    # FeSEM founds its groups with everybody.
    assert {line["participants"] for line in whole["lines"][1:]} == {3}


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        "strategy.memory=true k=auto k_max=3 strategy.probes=2 loss_data=held_out fine_tune_epochs=0.5 "
        "task.validation_fraction=0.2",
        "strategy.shared_layers=[1] averaging=gradients strategy.square_root=true eval_every=4",
        "loss_batch=9",
    ],
)
def test_cloves_options_go_on_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    folder, copies = with_copies(monkeypatch, tmp_path, settings("clove", *more.split()), range(1, 7))
    whole = results(folder)
    for server_round in sorted({2, len(whole["lines"])}):
        assert results(resumed(copies[server_round - 1])) == whole


def test_a_dry_run_on_own_data_goes_on_with_the_nodes_of_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    for name in ("a", "b", "c", "d"):
        (tmp_path / "data" / name).mkdir(parents=True)
        x, y = draw.integers(0, 256, (30, 1, 8, 8), dtype=np.uint8), np.arange(30) % 10
        np.savez(tmp_path / "data" / name / "data.npz", x=x, y=y)
    given = [
        *("experiment=own_digits", f"data_dir={tmp_path / 'data'}", "num_rounds=2", "min_clients=4", "quiet=true"),
        *("train.local_epochs=1", "task.model_options.hidden=[8]"),
    ]
    whole = results(straight(tmp_path / "whole", given))
    folder = killed(monkeypatch, tmp_path / "killed", given, 1)
    assert results(resumed(folder)) == whole
    assert (folder / "clients.csv").read_text().splitlines()[1].startswith("a,")


def test_a_folder_that_another_process_holds_is_not_even_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = killed(monkeypatch, tmp_path, settings("fedavg"), 2)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    # What it is about to take back or to write is nobody else's to judge.
    monkeypatch.setattr(Checkpoints, "load", lambda _: pytest.fail("the checkpoint was read"))
    with FolderLock(folder), pytest.raises(ConfigError, match=r"another process writes to .*; end it first"):
        resumed(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("name", ["l'été, (1)", "a{b}[c]"])
def test_the_command_that_goes_on_is_read_back_as_the_folder(tmp_path: Path, name: str) -> None:
    program, *arguments = shlex.split(resume_command(tmp_path / name))
    (given,) = read_overrides(arguments, problems := [])
    assert (program, given.value, problems) == ("florets", str(tmp_path / name), [])
    *command, settings = shlex.split(resume_command(tmp_path / name, trust=True, by_flower=True))
    assert command == ["flwr", "run", ".", "--stream", "--run-config"]
    # As Flower reads it: several keys in a line, each with a TOML value.
    assert parse_config_args([settings]) == {"resume": str(tmp_path / name), "overrides": "trust=true"}
    assert resume_command(tmp_path / name, trust=True) == f"{resume_command(tmp_path / name)} trust=true"


def test_a_line_without_its_checkpoint_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = results(straight(tmp_path / "whole", settings("ifca")))
    folder = killed(monkeypatch, tmp_path / "killed", settings("ifca"), 3)
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(json.dumps({"round": 4, "ari": 0.5}) + '\n{"round": 5, "a')
    (folder / "checkpoint" / "round-000004.part").write_bytes(b"half")
    assert results(resumed(folder)) == whole


def test_a_finished_run_says_so_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = straight(tmp_path, settings("fedavg", "num_rounds=2"))
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main([f"resume={folder}"]) == 0
    assert "nothing is left to do" in capsys.readouterr().out
    after = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}
    assert after == before


@pytest.mark.slow
def test_a_finished_run_goes_on_for_more_rounds(tmp_path: Path) -> None:
    whole = results(straight(tmp_path / "whole", settings("clove")))
    folder = straight(tmp_path / "less", settings("clove", "num_rounds=3"))
    assert results(resumed(folder, "num_rounds=6")) == whole
    with pytest.raises(ConfigError, match=r"num_rounds=2: the run in .* has finished with num_rounds=6"):
        resumed(folder, "num_rounds=2")
    assert main([f"resume={folder}", "num_rounds=2"]) == 2
    (folder / "report.html").unlink()
    with pytest.raises(ConfigError, match="num_rounds=2: the run has done 6 rounds already"):
        resumed(folder, "num_rounds=2")


def test_a_damaged_checkpoint_is_refused_and_an_older_one_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole = results(straight(tmp_path / "whole", settings("fedavg")))
    folder = killed(monkeypatch, tmp_path / "killed", settings("fedavg"), 4)
    newest, older = Checkpoints(folder).files()
    data = newest.read_bytes()
    newest.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    shutil.copytree(folder, tmp_path / "both")
    assert results(resumed(folder)) == whole
    assert "is damaged (its SHA-256" in caplog.text

    for path in Checkpoints(tmp_path / "both").files():
        path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(
        CheckpointError, match=r"round-000004.*damaged.*round-000003.*damaged.*run the experiment again"
    ):
        resumed(tmp_path / "both")
    assert older.name == "round-000003.safetensors"


def test_a_checkpoint_of_another_configuration_is_refused_by_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = killed(monkeypatch, tmp_path, settings("clove"), 2)
    values = yaml.safe_load((folder / "config.yaml").read_text())
    values["train"]["learning_rate"] = 0.5
    values["strategy"]["stability_rounds"] = 9
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    with pytest.raises(
        CheckpointError,
        match=r"strategy\.stability_rounds was 2 and is 9; train\.learning_rate was 0\.03 and is 0\.5",
    ):
        resumed(folder)


def test_what_resume_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"no run in this folder \(no config\.yaml\)"):
        resumed(tmp_path)
    with pytest.raises(ConfigError, match=r"nope: there is no such folder; name a run's folder"):
        resumed(tmp_path / "nope")
    folder = killed(monkeypatch, tmp_path, settings("fedavg", "checkpoint_every=0"), 2)
    assert not (folder / "checkpoint").exists()
    with pytest.raises(CheckpointError, match="checkpoint_every=0: there is nothing to resume"):
        resumed(folder)
    with pytest.raises(ConfigError, match=r"train\.learning_rate=1: cannot be changed during a run"):
        resumed(folder, "train.learning_rate=1")
    with pytest.raises(ConfigError, match="leave out -m"):
        command._act(command.read_arguments(["-m", f"resume={folder}"]))


def test_functions_that_a_folder_names_are_imported_only_with_trust(tmp_path: Path) -> None:
    config = compose(settings("fedavg", "task.model='tests.own_functions:no_such'"))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(json.loads(config_to_json(config))))
    for more in ([], ["trust=false"]):
        with pytest.raises(ConfigError, match=r"task\.model=tests\.own_functions:no_such; add trust=true"):
            read_resume([f"resume='{tmp_path}'", *more], ROOT)
    with pytest.raises(ConfigError, match="overrides='trust=true'"):
        read_run_config({"resume": str(tmp_path), "overrides": ""})
    with pytest.raises(ConfigError, match="trust=yes: must be true or false"):
        read_resume([f"resume='{tmp_path}'", "trust=yes"], ROOT)
    assert read_resume([f"resume='{tmp_path}'", "trust=true"], ROOT) == (config, tmp_path)
    assert read_run_config({"resume": str(tmp_path), "overrides": "trust=true"})[0] == config


def test_a_strategy_that_remembers_what_no_checkpoint_can_hold_is_told_where() -> None:
    with pytest.raises(TypeError, match=r"state/rng is a Generator, .*rebuild everything else"):
        encode({"rng": np.random.default_rng(0)}, {})


def test_flower_run_takes_the_folder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = killed(monkeypatch, tmp_path, settings("fedavg"), 2)
    config, found, resume = read_run_config({"resume": str(folder), "overrides": "num_rounds=20"})
    assert (config.num_rounds, config.num_clients, found, resume) == (20, 6, folder, True)
    with pytest.raises(ConfigError, match="absolute"):
        read_run_config({"resume": "results/x"})
    with pytest.raises(ConfigError, match="seed=3: cannot be changed"):
        read_run_config({"resume": str(folder), "overrides": "seed=3"})


def good(server_round: int) -> Checkpoint:
    return Checkpoint(server_round, models(1.0, 2.0), State({"a": 1}), [], {"seed": 0})


def content(**changes: object) -> str:
    values = {"version": VERSION, "round": 2, "config": {}, "clients": [], "models": [], "state": {"dict": []}}
    return json.dumps({**values, **changes})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "[" * 100_000,
        content(round="2"),
        content(state={"object": 3, "fields": []}),
        content(clients=[{"name": 1}]),
    ],
)
def test_of_a_made_up_checkpoint_the_one_before_is_taken(tmp_path: Path, text: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    older = checkpoints.save(good(1))
    made_up = safetensors.numpy.save({}, {"checkpoint": text, "sha256": module._digest(text, {})})
    (tmp_path / "checkpoint" / "round-000002.safetensors").write_bytes(made_up)
    assert checkpoints.load() == good(1)
    older.unlink()
    with pytest.raises(CheckpointError, match=r"round-000002.*does not fit.*run the experiment again"):
        checkpoints.load()
