"""The `florets` command for one run: options, exit codes, folders, texts. The engines are fakes."""

import dataclasses
import inspect
import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from florets.commands.help import help_text
from florets.commands.main import main
from florets.commands.verbs import VERBS
from florets.conf.presets import choices
from florets.conf.problems import ConfigError
from florets.conf.schema import Config, known_keys
from florets.reports.console import say
from florets.reports.summary import RunSummary
from florets.server_app.app import read_run_config
from florets.strategies import STRATEGIES
from tests.results_examples import NO_ROUNDS

ROOT = Path(__file__).resolve().parents[1]


def summary_of(config: Config, folder: str = "/results/here", accuracy: float | None = 0.985) -> RunSummary:
    return dataclasses.replace(
        NO_ROUNDS,
        experiment=config.experiment,
        strategy=config.strategy.name,
        seed=config.seed,
        rounds=config.num_rounds,
        final_accuracy=accuracy,
        final_loss=0.0123,
        final_ari=1.0,
        ari_at_10=1.0,
        first_round_ari_90=2,
        round_of_stability=5,
        bytes_down=10,
        bytes_up=10,
        seconds=12.34,
        folder=folder,
    )


@pytest.fixture
def calls(monkeypatch):
    recorded: list[tuple[Config, list[str]]] = []

    def run(config: Config, overrides: Sequence[str]) -> RunSummary:
        recorded.append((config, list(overrides)))
        return summary_of(config)

    monkeypatch.setattr("florets.engines.engine.run", run)
    return recorded


def test_alone_it_runs_the_quickstart_and_says_how_it_went_and_where(calls, capsys):
    assert main([]) == 0
    ((config, overrides),) = calls
    assert (config.experiment, overrides) == ("quickstart", [])
    assert capsys.readouterr().out.splitlines() == [
        "quickstart, clove, seed 0: accuracy 98.5 %, ARI 1.00, stable from round 5, 10 rounds in 12.3 s",
        "Results: /results/here",
    ]


@pytest.mark.parametrize(
    "command",
    [
        *([], ["-m", "seed=0,1"], ["plan"], ["check"], ["discover"], ["advise"]),
        ["tune", "task.validation_fraction=0.1,0.2"],
    ],
)
def test_no_command_answers_about_other_data_than_those_in_the_folder(command, calls, capsys):
    assert main([*command, "data_dir=sites", "experiment=quickstart"]) == 2
    assert "data_dir=sites: has no effect on experiment=" in capsys.readouterr().err
    assert calls == []


def test_real_nodes_read_the_folders_of_their_own(calls, capsys):
    assert main(["data_dir=sites", "engine=flwr", "superlink=hospitals"]) == 2
    assert "data_dir=sites: has no effect on real nodes" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="data_dir=sites: has no effect on real nodes"):
        read_run_config({"overrides": "data_dir=sites"})


@pytest.mark.parametrize("words", [[], ["k=2"], ["task.table.target=ill"]])
def test_a_folder_that_no_data_are_named_for_holds_data_of_ones_own(words, calls):
    assert main(["data_dir=sites", *words]) == 0
    assert main(["data_dir=sites", "task.data=mnist"]) == 0
    (own, _), (mnist, _) = calls
    assert (own.experiment, own.task.data, own.task.partition) == ("own_data", "own", "own")
    assert (mnist.experiment, mnist.task.data) == ("quickstart", "mnist")


@pytest.mark.parametrize("stream", ["cp1252", "ascii"])
def test_a_line_is_printed_whatever_the_encoding_lacks(stream):
    """In a process that joblib starts, or a notebook, no error handler is set."""
    written = io.BytesIO()
    text = io.TextIOWrapper(written, stream)
    say("ARI ≥ 0.9: Größe \udce9", text)
    wanted = {"cp1252": "ARI ? 0.9: Größe ?", "ascii": "ARI ? 0.9: Gr??e ?", "utf-8": "ARI ≥ 0.9: Größe ?"}
    assert written.getvalue().decode(stream) == f"{wanted[stream]}\n"


@pytest.mark.parametrize(
    ("module", "arguments", "said"),
    [
        ("ray", ["engine=flwr"], 'engine=flwr: needs ray; pip install "florets[sim]" installs it.'),
        (
            "hydra_plugins.hydra_joblib_launcher",
            ["-m", "seed=0,1", "hydra/launcher=joblib"],
            'hydra/launcher=joblib: needs hydra-joblib-launcher; pip install "florets[sweep]" installs it.',
        ),
    ],
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(monkeypatch, capsys, module, arguments, said):
    monkeypatch.setitem(sys.modules, module, None)
    assert main(arguments) == 2
    assert capsys.readouterr().err == f"florets: {said}\n"


def test_engine_local_trains_in_this_process(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["-q", "num_rounds=1", "num_clients=4", "k=2"]) == 0
    folder = tmp_path / "results/quickstart/clove/k-2__num_clients-4__num_rounds-1/seed-0"
    assert capsys.readouterr().out.endswith(f"Results: {folder}\n")
    assert (folder / "rounds.jsonl").read_text().count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_the_configuration_can_be_looked_at_without_a_run(calls, capsys):
    assert main(["--cfg", "strategy=ifca", "k=3"]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["k"], shown["strategy"]["name"]) == (3, "ifca")
    assert calls == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sed=1"], "florets: sed=1: there is no such key. Did you mean seed?\n"),
        (["-q", "target=a b", "advise"], "advise: a command's name comes first: florets advise -q 'target=a b'\n"),
        (["k=30"], "florets: k=30: more models than clients"),
        (["seed=0,1"], "add -m"),
        (["sed=1", "k=30"], "florets: 2 problems:\n  - "),
    ],
)
def test_a_wrong_configuration_ends_with_code_2_and_no_traceback(calls, capsys, arguments, message):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert calls == []


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConfigError(["task.data=x: no such data set"]), 2, "florets: task.data=x: no such data set\n"),
        (KeyError("layer"), 1, "florets: the run failed: KeyError: 'layer' (raised in run (test_command.py, line "),
        (KeyboardInterrupt(), 130, "florets: interrupted; no round was saved yet: start it again\n"),
    ],
)
def test_a_run_that_fails_ends_with_its_code_and_a_message(monkeypatch, capsys, caplog, error, code, message):
    caplog.set_level(logging.INFO, "florets")  # --debug changes it; after the test it is what it was

    def run(*_: object) -> RunSummary:
        raise error

    monkeypatch.setattr("florets.engines.engine.run", run)
    assert main([]) == code
    assert capsys.readouterr().err.startswith(message)
    assert main(["--debug"]) == code
    assert ("Traceback" in capsys.readouterr().err) == (code != 130)


def test_help_names_every_preset_strategy_task_and_key():
    text = help_text()
    names = [*choices("experiment"), *STRATEGIES, *choices("task"), *choices("train")]
    keys = {key for strategy in STRATEGIES for key in known_keys(strategy)} - {"strategy.name"}
    for name in [*names, *keys]:
        assert f"\n  {name} " in text, name
    rules = "null | silhouette | spectral | folds"
    assert f"[{rules}]" in " ".join(text.split())
    assert "[kmeans | agglomerative] (clove)" in text
    assert "[4 | auto]" in text
    assert max(map(len, text.splitlines())) <= 110
    # A file's comment may go on; what is shown of it must not promise more.
    assert not [line for line in help_text(10_000).splitlines() if line.endswith(":")]
    narrow = help_text(80).splitlines()
    assert max(map(len, narrow)) <= 80


@pytest.mark.parametrize("word", VERBS)
def test_a_commands_help_names_all_that_its_function_takes_from_a_terminal(word, capsys):
    assert main([word, "--help"]) == 0
    usage, *lines = capsys.readouterr().out.splitlines()
    assert usage.startswith(f"florets {word}")
    told = {line.split()[0].removeprefix("--").replace("-", "_") for line in lines if line.startswith("  ")}
    parameters = inspect.signature(getattr(import_module(f"florets.{VERBS[word]}"), word)).parameters
    given = set(parameters) - {"clients", "experiment", "words", "keys", "intervals"}
    assert all(name in usage.replace("-", "_") for name in given)
    assert given <= told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["export", "to=x"], "run is missing: florets export needs run=<path>."),
        (["export", "run=a", "run=b", "to=x"], "run: given twice with two values; keep one."),
        (["export", "run=", "to=x", "trust=yes"], "3 problems:"),
        (["export", "-q", "run=a", "to=x"], "-q: florets export has no such option (-h, --debug)."),
        (["tune", "k=2,3", "trials=many"], "trials=many: must be an integer."),
        (["new", "strategy"], "florets new: takes <kind> and <name>, and was given strategy."),
        (["stop", "results", "now=true"], "now=true: florets stop has no such key."),
    ],
)
def test_what_a_command_does_not_take_is_refused_before_its_function_is_imported(capsys, arguments, message):
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_help_and_a_mistyped_key_do_not_load_torch_or_flower():
    code = (
        "import sys; from florets.commands.main import main; main(['--help']); main(['sed=1']);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'flwr', 'sklearn', 'matplotlib')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "entry",
    [
        "florets.commands.main",
        "numpy, florets.client_app.app",
        # It loads all of torch and scikit-learn, for a line that the client's file has as well.
        pytest.param("numpy, florets.server_app.app", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_every_way_in_leaves_linear_algebra_one_thread(entry):
    # SciPy comes with a BLAS of its own, which is loaded later than NumPy's.
    code = f"import {entry}, scipy.linalg, threadpoolctl as t; print([p['num_threads'] for p in t.threadpool_info()])"
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    threads = json.loads(done.stdout)
    assert threads, done.stderr
    assert set(threads) == {1}
