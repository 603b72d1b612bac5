"""Every preset, task, and strategy with every kind of result runs, cut short, to its report with its pictures.

The cases come from the presets, the tasks and the registry: what is new is a case without a word here. Public data
are a few drawn samples in the published file formats (`tests.public_files.write_samples`).
"""

import base64
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from florets.commands.main import main
from florets.conf.compose import compose
from florets.conf.overrides import quote
from florets.conf.presets import choices, read_file
from florets.conf.problems import ConfigError
from florets.reports import frames
from florets.reports.summary import RunSummary
from florets.strategies import STRATEGIES
from florets.task.data import demo_data
from florets.task.registry import reads_files
from tests.public_files import write_csv, write_samples

pytestmark = [pytest.mark.slow, pytest.mark.pictures]

CLIENTS = 8


def at_most(most: int) -> Callable[[Any], Any]:
    """Return a function that lowers a number, or each number of a list, to `most`."""

    def lowered(value: Any) -> Any:
        return [lowered(one) for one in value] if isinstance(value, list) else min(value, most)

    return lowered


OPTIONS: dict[str, Callable[[Any], Any]] = {
    "samples_per_client": at_most(20),
    "counts": at_most(4),
    "shots": at_most(5),
    "test_shots": at_most(3),
    "clients_per_cluster": at_most(2),
    "clients": lambda value: [[min(count, 5), size] for count, size in value],
    "samples_per_cluster": at_most(600),
    "d": at_most(20),
}
"""How an option of data or of a partition is lowered where a preset has it."""
SMALL: dict[str, dict[str, Any]] = {
    "lines": {"train_per_line": 200, "test_per_line": 100},
    "channels": {"train_per_scene": 40, "test_per_scene": 20},
    "mlp": {"hidden": [8]},
    "cifar_cnn": {"channels": [4, 4], "hidden": [8]},
    "text_cnn": {"embedding": 8, "filters": 4},
    "conv_autoencoder": {"channels": [4, 4], "code": 8},
    "csi_autoencoder": {"code": 8},
}
"""Options of data sets and models that are large without them."""


def cut(given: tuple[str, ...]) -> dict[str, Any]:
    """Return the keys, of those not given, that make an experiment small: few clients and samples, one local step."""
    config = compose(given)
    task, settings = config.task, config.strategy.settings
    keys: dict[str, Any] = {"num_rounds": 2, "eval_every": 1, "train.local_steps": 1}
    small = {f"task.data_options.{name}": value for name, value in SMALL.get(task.data, {}).items()}
    small |= {f"task.model_options.{name}": value for name, value in SMALL.get(task.model, {}).items()}
    if (task.data, task.model) == ("mnist", "autoencoder"):
        small["task.data_options.side"] = 7
    for group in ("data_options", "partition_options"):
        for name, value in getattr(task, group).items():
            if name in OPTIONS:
                small[f"task.{group}.{name}"] = OPTIONS[name](value)
    if task.partition != "own":
        of_sizes = [count for count, _ in small.get("task.partition_options.clients", [])]
        listed = of_sizes or small.get("task.partition_options.clients_per_cluster")
        needed = max(CLIENTS, 2 * task.num_clusters, len(task.partition_options.get("angles", [])))
        keys["num_clients"] = sum(listed) if listed else min(config.num_clients, needed)
        keys["strategy.fraction_train"] = max(settings.fraction_train, 0.5)
    if config.k == "auto":
        keys["k_max"] = min(config.k_max, 4)
    if task.drift.rounds:
        keys["task.drift.rounds"] = [2]
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        counts = ("_steps", "_epochs", "_passes", "moment_rounds", "subspace_clients")
        if field.name.endswith(counts) and isinstance(value, int):
            keys[f"strategy.{field.name}"] = min(value, 2)
    typed = {text.partition("=")[0] for text in given}
    return {key: value for key, value in (keys | small).items() if key not in typed}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of all samples, and of two kinds of nodes with data of their own: digits/ and sites/."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        write_samples(folder, patch)
        demo_data.write_folders(folder / "digits")
        rng = np.random.default_rng(0)
        for site in range(4):
            rows = [[*x, "yes" if (x[0] > 0) == (site < 2) else "no"] for x in rng.standard_normal((30, 3)).round(3)]
            write_csv(folder / "sites" / f"site{site}.csv", ["a", "b", "c", "y"], rows)
        yield folder


@pytest.fixture(autouse=True)
def coarse_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the same pictures in fewer dots."""
    savefig = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda *args, **options: savefig(*args, **options | {"dpi": 40}))


Run = Callable[..., tuple[RunSummary, str]]


@pytest.fixture
def run(data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs an experiment, cut, and returns its summary and its page."""

    def run_cut(*given: str) -> tuple[RunSummary, str]:
        keys = [f"{key}={quote(value)}" for key, value in cut(given).items()]
        task, folder = compose(given).task, data_dir
        if task.data == "own":
            are_images = "input_shape" in task.partition_options
            folder /= "digits" if are_images else "sites"
            keys += [] if are_images else ["target=y"]
        # A folder that no part of the task reads is refused.
        keys += [f"data_dir={folder}"] if reads_files(task.data) is not False else []
        typed = [*given, *keys, f"results_dir={tmp_path}", "-q"]
        code = main(typed)
        said = capsys.readouterr()
        assert code == 0, f"{said.err}florets {' '.join(typed)}"
        *_, last = said.out.splitlines()
        summary, page = left_in(Path(last.removeprefix("Results: ")))
        assert f"{summary.experiment}, {summary.strategy}, seed 0: " in said.out
        return summary, page

    return run_cut


def left_in(folder: Path) -> tuple[RunSummary, str]:
    """Return a finished run's summary and its page; look at what every run leaves."""
    summary = RunSummary.from_json((folder / "summary.json").read_text())
    rounds, clients = frames.rounds(folder), frames.clients_over_rounds(folder).groupby("round")
    assert len(rounds) == summary.rounds >= 2
    # What a round costs is what it costs its clients, each's time rounded to a microsecond.
    for column, total in (("bytes_down", "bytes_down"), ("bytes_up", "bytes_up"), ("sampled", "participants")):
        assert clients[column].sum().tolist() == rounds[total].tolist()
    assert clients["seconds"].sum().tolist() == pytest.approx(rounds["client_seconds"].tolist(), abs=1e-5)
    page = (folder / "report.html").read_text()
    pictures = {path.name: path.read_bytes() for path in folder.glob("*.png")}
    assert "curves.png" in pictures
    assert ("loss_matrix.png" in pictures) == (folder / "loss_matrix.csv").is_file()
    for picture in pictures.values():
        assert base64.b64encode(picture).decode() in page
    return summary, page


@pytest.mark.parametrize("experiment", choices("experiment"))
def test_every_preset_runs_to_its_report(run: Run, experiment: str) -> None:
    summary, page = run(f"experiment={experiment}")
    assert f"<title>{experiment} " in page
    assert summary.final_loss is not None


@pytest.mark.parametrize("task", choices("task"))
def test_every_task_runs_to_its_report(run: Run, task: str) -> None:
    given = ["experiment=own_data"]
    if task != "own":
        own = read_file("task", task)
        # Networks that no option makes small have little to do.
        sizes = "" if own.get("partition") == "natural" else "samples_per_client: 6, test_samples_per_client: 4"
        options, clusters = f"task.partition_options={{{sizes}}}", own.get("num_clusters", 2)
        given = ["experiment=digits_label_skew", "num_clients=2", "checkpoint_every=0", options]
        given.append(f"task.num_clusters={min(clusters, 2)}")
    summary, _ = run(*given, f"task={task}", "k=2")
    assert summary.final_loss is not None


FEW = ("k=2", "task.num_clusters=2")
KINDS = {
    "accuracy": (("experiment=quickstart", *FEW), "test accuracy"),
    "cluster_error": (("experiment=quickstart", "cluster_test=true", *FEW), "cluster error"),
    "model_error": (("experiment=recovery/linear", *FEW), "model error"),
    "r2": (("experiment=cfl_gp/linear", "statistics=true", *FEW), ">r2</th>"),
    "auc": (("experiment=paper/clove/amazon_reviews", "statistics=true", *FEW), ">auc</th>"),
    "cluster_loss": (("experiment=digits_autoencoder", "cluster_test=true", *FEW), "cluster loss"),
}
"""Of each kind of result a run that has it, and what its page says then."""
REFUSED = {
    **dict.fromkeys(("fedproto", "fedpac", "fedrc"), dict.fromkeys(("model_error", "r2", "cluster_loss"), "classes"))
}
"""What a strategy cannot give by a rule, and a word of the refusal."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_runs_to_its_report_with_every_kind_of_result(run: Run, strategy: str, kind: str) -> None:
    keys, shown = KINDS[kind]
    if word := REFUSED.get(strategy, {}).get(kind):
        with pytest.raises(ConfigError, match=word):
            run(*keys, f"strategy={strategy}")
        return
    summary, page = run(*keys, f"strategy={strategy}")
    found = vars(summary) | {f"final_{name}": of["mean"] for name, of in summary.final_metrics.items()}
    assert found[f"final_{kind}"] is not None
    assert shown in page
