"""`florets assign` and `florets predict` on a finished run of digits, and on folders that were spoilt."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from florets.commands.main import main
from florets.conf.compose import compose
from florets.engines.engine import run
from florets.server_app.build import build_task
from florets.server_app.run_models import CLUSTERS, load_run, read_frozen
from florets.strategies.base.encoding import encode
from florets.strategies.base.groups import Frozen
from florets.strategies.core.cluster import nearest_centroid
from florets.task.data.new_data import Form, read_new
from florets.task.new_client import model_losses, predict

SETTINGS = [
    "experiment=digits_label_skew",
    "k=2",
    "task.num_clusters=2",
    "num_clients=6",
    "train.local_epochs=5",
    "quiet=true",
]
CLOVE = [*SETTINGS, "strategy.stability_rounds=1", "num_rounds=4", "first_round=evaluate"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of a run whose clustering was frozen, of one that has no clusters to freeze, and of a discovery."""
    folder = tmp_path_factory.mktemp("runs")
    commands = {
        "clove": CLOVE,
        "ifca": [*SETTINGS, "strategy=ifca", "num_rounds=4"],
        "discovery": [*SETTINGS, "strategy=discovery", "strategy.level=0.05", "num_rounds=3"],
    }
    found = {}
    for name, command in commands.items():
        given = [*command, f"results_dir={folder}"]
        found[name] = Path(run(compose(given), given).folder)
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Test samples of the clients 0 and 5, of different clusters, as archives, and a table."""
    folder, task = tmp_path_factory.mktemp("data"), build_task(compose(SETTINGS))
    for client in (0, 5):
        part = task.client(client)
        x, y = part.x_test.numpy(), part.y_test.numpy()
        np.savez(folder / f"{client}.npz", x=x, y=y)
    (folder / "0.csv").write_text("pixel0,pixel1,digit\n0,1,7\n")
    return folder


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def found_model(folder: Path, client: str) -> str:
    rows = csv.DictReader((folder / "clients.csv").read_text().splitlines())
    return {row["client"]: row["found_cluster"] for row in rows}[client]


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ("clove", "saved when the run froze"),
        ("ifca", "the lowest"),
        ("discovery", "what that group learned (cosine 0."),
    ],
)
@pytest.mark.parametrize("client", ["0", "5"])
def test_new_data_get_the_model_of_their_cluster(
    runs: dict[str, Path], data: Path, capsys: pytest.CaptureFixture[str], strategy: str, why: str, client: str
) -> None:
    assert main(["assign", f"run={runs[strategy]}", f"data={data / client}.npz"]) == 0
    first, _, *table, last = lines(capsys)
    model = found_model(runs[strategy], client)
    assert first.startswith(f"Model {model} fits best")
    assert why in first
    assert [row[0] == ">" for row in table] == [str(k) == model for k in range(2)]
    assert "accuracy 9" in last or "accuracy 100" in last


def test_the_saved_centroids_decide_and_not_the_lowest_loss(runs: dict[str, Path], data: Path) -> None:
    loaded = load_run(runs["clove"])
    assert loaded.frozen is not None
    centroids, place = loaded.frozen.centroids, loaded.frozen.model_of_cluster
    part = np.load(data / "0.npz")
    losses = model_losses(loaded.task, loaded.frozen_models(), part["x"], part["y"])
    expected = place[nearest_centroid(losses[None], centroids)[0]]
    assert loaded.nearest_frozen(losses) == expected
    # Far from where the loss is lowest, the centroid still decides.
    assert loaded.nearest_frozen(centroids[1]) == place[1]
    # The models at the moment of stability are not those of the run's end.
    frozen = loaded.frozen_models()[0]
    assert any(not np.array_equal(frozen[name], loaded.models[0][name]) for name in loaded.models[0])


def test_new_data_are_measured_on_the_probes_too(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*CLOVE, "strategy.probes=2", "loss_data=held_out", f"results_dir={tmp_path}"]
    folder = Path(run(compose(given), given).folder)
    loaded = load_run(folder)
    assert loaded.frozen is not None
    assert (len(loaded.models), len(loaded.frozen_models()), loaded.frozen.centroids.shape[1]) == (2, 4, 4)
    with (folder / "clients.csv").open(newline="") as file:
        found = {row["client"]: row["found_cluster"] for row in csv.DictReader(file)}
    for client in ("0", "5"):
        # All of a new client's data are as good as held out: no model was trained on them.
        assert main(["assign", f"run={folder}", f"data={data / client}.npz"]) == 0
        assert f"Model {found[client]} fits best: its cluster's losses" in capsys.readouterr().out


def test_data_that_no_group_of_a_discovery_fits_are_told_so(
    runs: dict[str, Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = np.load(data / "0.npz")
    # Other labels: what the first model learns from them is like nothing that a group learned.
    labels = (part["y"] + 5) % 10
    np.savez(tmp_path / "other.npz", x=part["x"], y=labels)
    assert main(["assign", f"run={runs['discovery']}", f"data={tmp_path / 'other.npz'}"]) == 0
    assert lines(capsys)[0].startswith("None of the run's groups fits these data (cosine ")


def test_groups_that_do_not_fit_the_run_are_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    loaded = load_run(runs["discovery"])
    assert loaded.frozen_by == "folds"
    frozen, training = loaded.frozen, loaded.frozen.training

    def again(spoilt: Frozen, count: int = 2) -> Frozen | None:
        arrays: dict[str, np.ndarray] = {}
        return read_frozen(arrays, {"frozen": json.dumps(encode(spoilt, arrays))}, count, 10)

    found = again(frozen)
    assert found is not None
    np.testing.assert_array_equal(found.centroids, frozen.centroids)
    wide = replace(training.form, width=training.form.width + 1)
    for changed in ({"steps": 10**9}, {"folds": "4"}, {"rate": 0.0}, {"form": wide}):
        with pytest.raises(ValueError, match=r"."):
            again(replace(frozen, training=replace(training, **changed)))
    for spoilt in ({"origin": np.full(len(frozen.origin), np.nan)}, {"scale": np.zeros(0)}, {"models": None}):
        with pytest.raises(ValueError, match=r"."):
            again(replace(frozen, **spoilt))
    with pytest.raises(ValueError, match="do not fit 3 models"):
        again(frozen, 3)


@pytest.mark.parametrize("which", ["client", "model"])
def test_predictions_are_written_for_inputs_alone(
    runs: dict[str, Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], which: str
) -> None:
    model = found_model(runs["ifca"], "5")
    choice = "client=5" if which == "client" else f"model={model}"
    target = tmp_path / "predictions.csv"
    archive = f"data={data / '5.npz'}"
    assert main(["predict", f"run={runs['ifca']}", archive, choice, f"output={target}"]) == 0
    assert lines(capsys)[-1].endswith(str(target))
    rows = list(csv.DictReader(target.read_text().splitlines()))
    labels = np.load(data / "5.npz")["y"]
    assert [row["sample"] for row in rows] == [str(i + 1) for i in range(len(labels))]
    assert np.mean([int(row["prediction"]) == label for row, label in zip(rows, labels, strict=True)]) > 0.9
    assert all(row["probability"] == row[f"p({row['prediction']})"] for row in rows)
    assert list(rows[0]) == ["sample", "prediction", "probability", *(f"p({label})" for label in range(10))]
    loaded = load_run(runs["ifca"])
    again = predict(loaded.task, loaded.models[int(model)], np.load(data / "5.npz")["x"])
    assert [int(row["prediction"]) for row in rows] == again.values.tolist()


def test_inputs_are_read_from_a_folder_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    pixels = np.arange(64, dtype=np.uint8).reshape(8, 8)
    for name in ("b.png", "a.png"):
        Image.fromarray(pixels).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    found = read_new(tmp_path, Form(grayscale=True), labelled=False)
    assert (found.names, found.x.shape) == (["a.png", "b.png"], (2, 1, 8, 8))
    np.testing.assert_allclose(found.x[0, 0], pixels / 255, rtol=1e-6)
    assert read_new(tmp_path, Form(image_size=4), labelled=False).x.shape == (2, 3, 4, 4)
    Image.fromarray(pixels[:4]).save(tmp_path / "c.png")
    with pytest.raises(ValueError, match=r"differs in size from the first: set task.data_options.image_size"):
        read_new(tmp_path, Form(grayscale=True), labelled=False)
    with monkeypatch.context() as patch:
        # Twice as many are an error, and no warning alone.
        patch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
        with pytest.raises(ValueError, match=r"a\.png: the image cannot be read .*DecompressionBomb"):
            read_new(tmp_path, Form(grayscale=True), labelled=False)
    (tmp_path / "b.png").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"b\.png: the image cannot be read"):
        read_new(tmp_path, Form(grayscale=True), labelled=False)


def test_folders_that_hold_other_things_are_refused(tmp_path: Path) -> None:
    (tmp_path / "images" / "train" / "a").mkdir(parents=True)
    with pytest.raises(ValueError, match="images holds no image"):
        read_new(tmp_path / "images", Form(classes=["train"]), labelled=True)
    with pytest.raises(ValueError, match=r"a regression's targets are values: give a \.npz file"):
        read_new(tmp_path / "images", Form(regression=True), labelled=True)


def test_an_archive_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "new.npz"
    np.savez_compressed(path, x=np.random.default_rng(0).standard_normal((20, 20)))
    whole = path.read_bytes()
    for content, message in ((b"no archive", "it is not an archive"), (whole[:500], "cannot be read")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_new(path, Form(), labelled=False)
    for arrays, message in (
        ({"x": np.array([[print]], dtype=object)}, "Python objects"),
        ({"a": np.ones(3)}, "no 'x'"),
        ({"x": np.array([[np.nan]])}, "not finite numbers"),
    ):
        np.savez(path, **arrays)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=message):
            read_new(path, Form(), labelled=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["assign", "run={run}", "data=there", "trusts=x"], r"trusts=x.*Did you mean trust\?"),
        (["predict", "run={run}", "data={data}/0.npz", "model=0", "client=0"], "either model=<number>"),
        (
            ["predict", "run={run}", "data={data}/0.npz", "client=9"],
            r"client=9: .* Its clients are 0, 1, 2, 3, 4 and 1 more \(clients",
        ),
        (["predict", "run={data}/no_run", "data={data}/0.npz", "output={data}/0.csv"], "is not overwritten"),
    ],
)
def test_what_is_wrong_is_said_with_its_remedy(
    runs: dict[str, Path], data: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    before = (data / "0.csv").read_bytes()
    given = [text.replace("{run}", str(runs["clove"])).replace("{data}", str(data)) for text in arguments]
    assert main(given) == 2
    assert re.search(message, capsys.readouterr().err.replace("\n", " "))
    assert (data / "0.csv").read_bytes() == before
    assert not (data / "new.csv").exists()


def changed(name: str) -> Callable[[Path], None]:
    """Return what spoils one part of a run's folder."""

    def arrays(file: str, **values: np.ndarray) -> Callable[[Path], None]:
        def spoil(folder: Path) -> None:
            from safetensors import safe_open

            with safe_open(folder / file, framework="np") as opened:
                metadata = opened.metadata()
            save_file({**load_file(folder / file), **values}, folder / file, metadata)

        return spoil

    def config(folder: Path) -> None:
        values = yaml.safe_load((folder / "config.yaml").read_text())
        values["task"]["model"] = "os:system"
        (folder / "config.yaml").write_text(yaml.safe_dump(values))

    return {
        "no clusters": lambda folder: (folder / CLUSTERS).unlink(),
        "yaml": lambda folder: (folder / "config.yaml").write_text("!!python/object/apply:os.system [ls]"),
        "function": config,
        "centroids": arrays(CLUSTERS, **{"0 frozen/centroids": np.ones((3, 2))}),
        "shape": arrays("models.safetensors", **{"0/1.weight": np.ones((3, 3), dtype=np.float32)}),
    }[name]  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("no clusters", "folder of a finished run"),
        ("yaml", "config.yaml cannot be read"),
        ("function", r"task.model=os:system.*add trust=true"),
        ("centroids", r"centroids \(3, 2\) do not fit 2 models"),
        ("shape", "the run's task.model has"),
    ],
)
def test_a_folder_that_was_damaged_or_made_up_is_refused(
    runs: dict[str, Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str, message: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs["clove"], folder)
    changed(what)(folder)
    assert main(["assign", f"run={folder}", f"data={data / '0.npz'}"]) == 2
    assert re.search(message, capsys.readouterr().err)
