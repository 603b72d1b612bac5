"""FLUX: when groups are formed, who is in them, and clients that come later, with and without labels."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.cluster import DBSCAN
from torch import nn

from florets.api.run import Run
from florets.commands.main import main
from florets.conf.compose import compose
from florets.engines.engine import run
from florets.server_app.build import build_task
from florets.server_app.run_models import load_run
from florets.strategies.base.groups import scale_rows
from florets.strategies.core.cluster import canonical
from florets.task.descriptors import describe
from florets.task.models.mlp import mlp
from florets.task.training.features import features
from florets.zoo.flux import DESCRIPTOR, density_clusters, knee, row_scale
from tests.method_runs import SMALL, play

SHORT = ("strategy=flux", "num_rounds=2")


@pytest.fixture(autouse=True, scope="module")
def early() -> Iterator[None]:
    """Let groups be formed in round 1 of 2, or round 2 of 3."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("florets.zoo.flux.LATEST", 0.4)
        yield


def test_groups_are_found_after_rounds_of_fedavg() -> None:
    found = play("strategy=flux", "num_rounds=3", "strategy.fraction_train=0.5")
    assert found.ari == 1.0
    assert [report.phase for report in found.reports] == ["training", "clustering", "stable"]
    assert [report.num_clusters for report in found.reports] == [1, 2, 2]
    assert len(found.reports[1].assignment) == 6
    assert [list(report.details) for report in found.reports] == [[], ["eps"], []]


def test_a_client_whose_descriptor_was_lost_is_placed_when_it_takes_part() -> None:
    # Of four clients in two pairs the smaller distance is the knee, which leaves the other pair apart.
    late = play(*SHORT, "strategy.eps_scale=1.5", lost={(DESCRIPTOR, 1, client) for client in (0, 5)})
    assert sorted(late.reports[0].assignment) == ["1", "2", "3", "4"]
    assert late.ari == 1.0
    assert len(late.reports[1].assignment) == 6


def test_without_classes_the_two_overall_rows_are_the_descriptor() -> None:
    short = ("task.data_options.train_per_line=60", "task.data_options.test_per_line=20", "num_rounds=1")
    found = play("experiment=cfl_gp/linear", "strategy=flux", *short)
    frozen = found.strategy.state.frozen
    assert frozen.centroids.shape[1:] == (4, 8)
    assert (frozen.origin[2:] == -1.0).all()
    assert (frozen.scale[2:] == 0.0).all()
    assert (frozen.scale[:2] > 0.0).all()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished run, and archives of two of its clients beside it."""
    folder = tmp_path_factory.mktemp("flux")
    given = [*SMALL, *SHORT, "quiet=true", f"results_dir={folder / 'runs'}"]
    found = Path(run(compose(given), given).folder)
    task = build_task(compose(given))
    for client in (0, 5):
        data = task.client(client)
        np.savez(folder / f"{client}.npz", x=data.x_test.numpy(), y=data.y_test.numpy())
    return found


@pytest.mark.parametrize("client", [0, 5])
def test_a_later_client_is_placed(finished: Path, capsys: pytest.CaptureFixture[str], client: int) -> None:
    data = next(parent for parent in finished.parents if parent.name == "runs").parent
    loaded = load_run(finished)
    assert loaded.frozen_by == "descriptors"
    assert main(["assign", f"run={finished}", f"data={data / str(client)}.npz"]) == 0
    found = {"command": capsys.readouterr().out.split()[1]}
    with np.load(data / f"{client}.npz") as archive:
        found["in memory"] = str(Run(finished).assign(archive["x"], archive["y"]).model)
    row = next(line for line in (finished / "clients.csv").read_text().splitlines() if line.startswith(f"{client},"))
    header = (finished / "clients.csv").read_text().splitlines()[0].split(",")
    assert set(found.values()) == {row.split(",")[header.index("found_cluster")]}


def test_features_of_a_network_are_what_its_last_layer_gets() -> None:
    module = mlp((1, 4, 4), 3, hidden=[5])
    x = torch.rand(7, 1, 4, 4)
    found = features(module, x)
    assert isinstance(module, nn.Sequential)
    np.testing.assert_array_equal(found, module[:-1](x).detach().numpy().astype(np.float64))
    np.testing.assert_array_equal(features(module, x, ["1"]), x.flatten(1).numpy())


def test_a_descriptor_by_hand() -> None:
    samples = np.array([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [0.0, 2.0], [6.0, 1.0]])
    labels = np.array([0, 0, 2, 2, 1])
    found = describe(samples, labels, 3, np.eye(2))
    expected = [
        [2.0, 1.0],  # mean and spread of all
        [np.sqrt(26 / 5), np.sqrt(4 / 5)],
        [2.0, 0.0], [-1.0, -1.0], [0.0, 2.0],  # means of the classes: of one sample class 1 has no spread
        [1.0, 0.0], [-1.0, -1.0], [0.0, 0.0],
    ]  # fmt: skip
    np.testing.assert_allclose(found, expected)


def test_every_row_is_brought_to_0_to_1_on_its_own() -> None:
    descriptors = np.array([[[0.0, 2.0], [7.0, 7.0]], [[4.0, 1.0], [7.0, 7.0]]])
    scale = row_scale(descriptors)
    found = scale_rows(descriptors, *scale)
    np.testing.assert_array_equal(found, [[[0, 0.5], [0, 0]], [[1, 0.25], [0, 0]]])
    # A newcomer is put on the same scale, be it outside; a row in which all were equal tells nothing.
    np.testing.assert_array_equal(scale_rows(np.array([[8.0, -4.0], [9.0, 9.0]]), *scale), [[2, -1], [0, 0]])


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1, 1, 1, 1, 5], 1), ([0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 9], 3), ([2, 2, 2, 2], 2), ([0, 5, 8, 9, 9.5], 9.5)],
)
def test_knees_by_hand(values: list[float], expected: float) -> None:
    assert knee(np.array(values, dtype=np.float64)) == expected
    # Neither the unit nor the origin matters.
    assert knee(4.0 * np.array(values) + 8.0) == 4.0 * expected + 8.0


def blobs(seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    rng = np.random.default_rng(seed)
    points = np.repeat(3.0 * rng.standard_normal((4, 3)), 6, axis=0) + 0.3 * rng.standard_normal((24, 3))
    return np.concatenate([points, 9.0 + 6.0 * rng.random((3, 3))])


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scale", [0.3, 1.0, 2.5])
def test_clusters_are_dbscans_with_each_outlier_alone(seed: int, scale: float) -> None:
    points = blobs(seed)
    labels, radius = density_clusters(points, scale)
    # The radius is the distance of two points, which scikit-learn may compute with another last bit.
    expected = DBSCAN(eps=radius * (1 + 1e-9), min_samples=2).fit_predict(points)
    outliers = expected == -1
    expected[outliers] = 100 + np.arange(outliers.sum())
    np.testing.assert_array_equal(labels, canonical(expected.astype(np.int64)))
