"""Hugging Face data sets and Flower Datasets' partitioners: arrays, shards, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import florets
from florets.conf.compose import compose
from florets.conf.problems import ConfigError
from florets.studies import one_run
from florets.task.data.dataset import Pixels
from florets.task.data.hugging_face import HuggingFaceDataset, hugging_face
from florets.task.partitions.flower_partitioner import flower_partitioner

datasets = pytest.importorskip("datasets")
partitioners = pytest.importorskip("flwr_datasets.partitioner")

CLASSES = 3
PARTITIONERS: dict[str, dict[str, Any]] = {
    "IidPartitioner": {},
    "DirichletPartitioner": {"partition_by": "kind", "alpha": 0.5, "seed": 7},
    "PathologicalPartitioner": {"partition_by": "kind", "num_classes_per_partition": 2, "seed": 7},
    "NaturalIdPartitioner": {"partition_by": "site"},
}


def table(rows: int, seed: int) -> Any:
    """Images of 4 x 4 pixels whose first one is the row's number, with a class, a site and an age."""
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (rows, 4, 4), dtype=np.uint8)
    images[:, 0, 0] = np.arange(rows)
    features = datasets.Features(
        {
            "picture": datasets.Image(),
            "kind": datasets.ClassLabel(names=["a", "b", "c"]),
            "site": datasets.Value("string"),
            "age": datasets.Value("float32"),
            "stay": datasets.Value("int64"),
        }
    )
    values = {
        "picture": list(images),
        "kind": rng.integers(0, CLASSES, rows).tolist(),
        "site": [f"site-{n}" for n in rng.integers(0, 4, rows)],
        "age": rng.normal(50, 10, rows).tolist(),
        "stay": rng.integers(0, 9, rows).tolist(),
    }
    return datasets.Dataset.from_dict(values, features=features)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hf") / "saved"
    datasets.DatasetDict({"train": table(200, 0), "test": table(80, 1)}).save_to_disk(str(folder))
    return folder


def load(source: Path, **options: Any) -> HuggingFaceDataset:
    return hugging_face(data_dir=None, seed=0, num_clusters=0, source=str(source), **options)


def test_images_and_classes_become_a_data_set(saved: Path) -> None:
    data = load(saved)
    assert isinstance(data.x_train, Pixels)
    assert (data.input_shape, data.num_outputs, len(data.y_train), len(data.y_test)) == ((1, 4, 4), CLASSES, 200, 80)
    expected = table(200, 0)
    assert data.x_train[:][:, 0, 0, 0] * 255 == pytest.approx(np.arange(200))
    assert data.y_train.tolist() == expected["kind"][:]
    assert list(data.columns_train["site"]) == expected["site"][:]
    assert "picture" not in data.columns_train


def test_files_that_the_library_reads_are_divided_where_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "files"
    folder.mkdir()
    table(50, 0).remove_columns(["picture", "site"]).to_parquet(str(folder / "part.parquet"))
    for source in (folder, folder / "part.parquet"):
        data = load(source, test_share=0.3)
        assert (data.x_train.shape, data.x_test.shape) == ((35, 2), (15, 2))
    assert load(folder, test_share=0.3).y_test.tolist() == data.y_test.tolist()
    arrays = datasets.Dataset.from_dict(
        {"signal": np.arange(24).reshape(4, 2, 3).tolist(), "label": ["x", "y", "y", "x"]},
        features=datasets.Features(
            {"signal": datasets.Array2D((2, 3), "float32"), "label": datasets.Value("string")}
        ),
    )
    arrays.save_to_disk(str(tmp_path / "arrays"))
    found = hugging_face(tmp_path, 0, 0, source="arrays", test_share=0.25)
    assert found.input_shape == (1, 2, 3)
    assert sorted([*found.x_train.ravel(), *found.x_test.ravel()]) == list(range(24))


@pytest.mark.parametrize("name", PARTITIONERS)
def test_clients_hold_the_partitions_of_the_library(name: str, saved: Path) -> None:
    options, data = PARTITIONERS[name], load(saved)
    clients = 4
    shards = flower_partitioner(data, clients, 0, np.random.default_rng(0), partitioner=name, **options)
    kind = getattr(partitioners, name)
    oracle = kind(**options, **({} if name.startswith("Natural") else {"num_partitions": clients}))
    oracle.dataset = table(200, 0).add_column("row", list(range(200)))
    for client, shard in enumerate(shards):
        assert shard.train.tolist() == oracle.load_partition(client)["row"][:]
        assert shard.cluster == -1
        if name.startswith("Natural"):
            assert {data.columns_train["site"][row] for row in shard.train} == {shard.name}
            assert [data.columns_test["site"][row] == shard.name for row in range(80)] == [
                row in shard.test for row in range(80)
            ]
        else:
            # In the proportions of the training labels.
            classes = set(data.y_train[shard.train])
            assert set(data.y_test[shard.test]) <= classes
            assert len(shard.test) == pytest.approx(max(10, len(shard.train) * 80 / 200), abs=12)


def test_a_run_names_both_for_short(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(saved.parent)
    keys = {"num_rounds": 1, "k": 2, "num_clients": 4, "pictures": False, "loss_matrix": False, "quiet": True}
    run = florets.run(
        "quickstart",
        data="hf:saved",
        partition="flwr:DirichletPartitioner",
        task={"partition_options": {"alpha": 1.0, "partition_by": "kind", "min_partition_size": 1}},
        results_dir=tmp_path,
        **keys,
    )
    assert run.accuracy is not None
    assert run.config["task"]["data_options"] == {"source": str(saved)}
    assert run.config["task"]["num_clusters"] == 0
    assert run.ari is None
    options = compose(
        ["task.partition=flwr:IidPartitioner", "task.partition_options={clusters:[0,1]}", "num_clients=4"]
    )
    assert options.task.partition_options == {"partitioner": "IidPartitioner", "clusters": [0, 1]}
    assert options.task.num_clusters == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": "all"}, r"train=all: there is no such split; the data set has train, test"),
        ({"label": "sort"}, r"label=sort: there is no such column; there are picture, kind, site, age, stay"),
        ({"label": "picture"}, "holds images; name a column of classes or numbers"),
        ({"inputs": ["site"]}, r"column 'site' holds no numbers; an input can be made of picture, age, stay"),
    ],
)
def test_columns_and_splits_that_are_not_there_are_named(options: dict[str, Any], message: str, saved: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load(saved, **options)


def test_what_cannot_be_loaded_says_what_to_do(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object) -> None:
        raise ConnectionError("Couldn't reach 'someone/something' on the Hub")

    monkeypatch.setattr(datasets, "load_dataset", no_network)
    with pytest.raises(
        ValueError, match=r"hf:someone/something: cannot be loaded .* without a network, .* save_to_disk"
    ):
        hugging_face(None, 0, 0, source="someone/something")
    with pytest.raises(ValueError, match="there is no such folder"):
        load(tmp_path / "nowhere")
    monkeypatch.setattr("florets.conf.extras.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r'task.data=hf:\.\.\.: needs flwr-datasets and datasets; pip install "florets\[hf\]"'
    ):
        one_run.prepare([f"task.data='hf:{saved}'"], tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"partitioner": "OddPartitioner"},
            r"no such partitioner; there are ContinuousPartitioner, DirichletPartitioner",
        ),
        ({"partitioner": "IidPartitioner", "alpha": 1}, r"alpha: .* has no such option. Its options: none"),
        ({"partitioner": "IidPartitioner", "num_partitions": 3}, "Their number is num_clients"),
        ({"partitioner": "DirichletPartitioner", "alpha": 1}, "partition_by is missing"),
        ({"partitioner": "NaturalIdPartitioner", "partition_by": "ward"}, "there are kind, site, age, stay, label"),
        ({"partitioner": "IidPartitioner", "clusters": [0, 1, 2, 3]}, r"clusters: must give each of the 4 clients"),
    ],
)
def test_partitions_that_cannot_be_are_refused(given: dict[str, Any], message: str, saved: Path) -> None:
    with pytest.raises(ValueError, match=message):
        flower_partitioner(load(saved), 4, 2 if "clusters" in given else 0, np.random.default_rng(0), **given)
    if not given.get("clusters"):
        with pytest.raises(ValueError, match="knows no groups of clients"):
            flower_partitioner(load(saved), 4, 2, np.random.default_rng(0), **given)
