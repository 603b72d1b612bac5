"""Data sets of the Hugging Face library `datasets`: saved to disk, in files, or by their name on the hub."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset, Inputs, IntArray, Pixels, TargetArray
from florets.task.data.splits import split_rows
from florets.task.randomness import Purpose, generator
from florets.task.registry import register_data

Columns = Mapping[str, Sequence[Any]]

HUGGING_FACE = "hugging_face"
"""Name of the data set: a folder, a file or a name on the hub."""

_SAVED = ("dataset_dict.json", "state.json")
_FORMATS = {".parquet": "parquet", ".arrow": "arrow", ".csv": "csv", ".json": "json", ".jsonl": "json"}
_LABELS = ("label", "labels", "target", "y")
_OPTIONS = "task.data_options"


@dataclass(frozen=True)
class HuggingFaceDataset(Dataset):
    """A data set with the columns that a partitioner may go by.

    Parameters
    ----------
    columns_train, columns_test
        Values of the columns that hold one number, text or class for each sample.
    """

    columns_train: Columns = field(default_factory=dict)
    columns_test: Columns = field(default_factory=dict)


@register_data(HUGGING_FACE)
def hugging_face(
    data_dir: Path | None,
    seed: int,
    num_clusters: int,
    source: str,
    subset: str = "",
    train: str = "",
    test: str = "",
    inputs: list[str] | None = None,
    label: str = "",
    test_share: float = 0.2,
) -> HuggingFaceDataset:
    """Load a data set of the Hugging Face library; for short ``task.data=hf:<source>``.

    Images become (n, channels, height, width) in [0, 1], arrays of two axes images of one channel, and columns of
    numbers rows (n, columns).

    Parameters
    ----------
    data_dir
        Folder in which `source` is looked for first.
    source
        A folder that ``save_to_disk`` has written, a folder with files that the library reads (Parquet, Arrow, CSV,
        images), such a file, or a name on the hub, which needs a network.
    subset
        Of a data set with several, such as a language.
    train, test
        Names of the splits; empty: ``train``, or the only one, and ``test`` where there is one.
    inputs
        Columns of an input: one of images or arrays, or any of numbers; none: the only one of images or arrays, else
        all of numbers but the label.
    label
        Column of the targets: classes, integers and texts are classes, floating-point numbers are values. Empty: the
        only one of classes, else the one called label, labels, target or y.
    test_share
        Fraction of the samples that is tested on where there is no test split.
    """
    splits = _loaded(source, subset, data_dir)
    train_table = _split(splits, "train", train or ("train" if "train" in splits else ""))
    test_table = _split(splits, "test", test or "test") if test or "test" in splits else None
    target = _label_column(train_table, label)
    if test_table is None:
        train_table, test_table = _divided(train_table, target, test_share, seed)
    names = _input_columns(train_table, target, inputs)
    y_train, y_test, outputs = _targets(train_table, test_table, target)
    return HuggingFaceDataset(
        _inputs(train_table, names),
        y_train,
        _inputs(test_table, names),
        y_test,
        outputs,
        _groups(y_train),
        _groups(y_test),
        columns_train=_columns(train_table),
        columns_test=_columns(test_table),
    )


def _loaded(source: str, subset: str, data_dir: Path | None) -> dict[str, Any]:
    """Return the splits of a data set by name."""
    try:
        import datasets
    except ImportError:
        raise ValueError(f'task.data=hf:{source}: needs datasets; pip install "florets[hf]" installs it.') from None
    place = _place(source, data_dir)
    try:
        if place is None:
            found = datasets.load_dataset(source, subset or None)
        elif place.is_file():
            found = datasets.load_dataset(_FORMATS[place.suffix], data_files=str(place))
        elif any((place / name).is_file() for name in _SAVED):
            found = datasets.load_from_disk(str(place))
        else:
            found = datasets.load_dataset(str(place), subset or None)
    # What the library raises is of many kinds: of files, of formats, of the network.
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        remedy = (
            "without a network, load it elsewhere, save it by save_to_disk(<folder>) and give task.data=hf:<folder>"
            if place is None
            else "give a folder that save_to_disk has written, or one with files that datasets.load_dataset reads"
        )
        raise ValueError(
            f"task.data=hf:{source}: cannot be loaded ({type(error).__name__}: {reason}); {remedy}."
        ) from error
    return dict(found) if isinstance(found, dict) else {"train": found}


def _place(source: str, data_dir: Path | None) -> Path | None:
    """Return the folder or file that is meant, None where it is a name on the hub."""
    path = Path(source).expanduser()
    for place in (*([data_dir / path] if data_dir is not None else []), path):
        if place.is_dir() or (place.is_file() and place.suffix in _FORMATS):
            return place
    if path.is_absolute() or source.startswith("."):
        raise ValueError(
            f"task.data=hf:{source}: there is no such folder, nor a file that ends in {', '.join(_FORMATS)}; name a "
            "data set saved by save_to_disk."
        )
    return None


def _split(splits: Mapping[str, Any], part: str, name: str) -> Any:
    if not name and len(splits) == 1:
        return next(iter(splits.values()))
    if name not in splits:
        raise ValueError(f"{_OPTIONS}.{part}={name}: there is no such split; the data set has {', '.join(splits)}.")
    return splits[name]


def _divided(table: Any, label: str, test_share: float, seed: int) -> tuple[Any, Any]:
    if not 0 < test_share < 1 or len(table) < 2:
        raise ValueError(
            f"{_OPTIONS}.test_share={test_share}: of {len(table)} samples there must be some to train on and some to "
            "test on; use a fraction between 0 and 1, or name a split as task.data_options.test."
        )
    is_regression = _holds_values(table.features[label])
    values = _numbers(table, label) if is_regression else _classes_of(table, label)
    train, test = split_rows(
        values.astype(np.float64), None, test_share, generator(seed, 0, Purpose.DATA), is_regression
    )
    return table.select(train), table.select(test)


def _classes_of(table: Any, label: str) -> NDArray[np.int64]:
    """Return a number for the class of each sample, among them one for those without a class."""
    cells = table.select_columns([label]).with_format(None)[:][label]
    return np.unique(np.array(list(map(str, cells))), return_inverse=True)[1].astype(np.int64)


def _holds_values(feature: Any) -> bool:
    import datasets

    return isinstance(feature, datasets.Value) and str(feature.dtype).startswith("float")


def _label_column(table: Any, label: str) -> str:
    """Return the column of the targets, which holds neither images nor arrays."""
    found = _label_name(table, label)
    if (kind := _kind(table.features[found])) in ("image", "array"):
        raise ValueError(f"{_OPTIONS}.label={found}: holds {kind}s; name a column of classes or numbers.")
    return found


def _label_name(table: Any, label: str) -> str:
    import datasets

    names = list(table.features)
    if label:
        if label not in names:
            raise ValueError(f"{_OPTIONS}.label={label}: there is no such column; there are {', '.join(names)}.")
        return label
    classes = [name for name, kind in table.features.items() if isinstance(kind, datasets.ClassLabel)]
    found = classes if len(classes) == 1 else [name for name in _LABELS if name in names]
    if not found:
        raise ValueError(
            f"{_OPTIONS}.label is missing: which column holds the targets? There are {', '.join(names)}."
        )
    return found[0]


def _input_columns(table: Any, label: str, wanted: Sequence[str] | None) -> list[str]:
    kinds = {name: _kind(feature) for name, feature in table.features.items() if name != label}
    if wanted:
        for name in wanted:
            if kinds.get(name) in (None, "text"):
                holds = "holds no numbers" if name in kinds else "is the label" if name == label else "does not exist"
                able = ", ".join(one for one, kind in kinds.items() if kind != "text") or "none"
                raise ValueError(f"{_OPTIONS}.inputs: column {name!r} {holds}; an input can be made of {able}.")
        if len(wanted) > 1 and any(kinds[name] != "number" for name in wanted):
            raise ValueError(
                f"{_OPTIONS}.inputs={list(wanted)}: must be one column of images or arrays, or some of numbers."
            )
        return list(wanted)
    for kind in ("image", "array"):
        found = [name for name, one in kinds.items() if one == kind]
        if len(found) > 1:
            raise ValueError(
                f"{_OPTIONS}.inputs is missing: there are several columns of {kind}s, {', '.join(found)}."
            )
        if found:
            return found
    if numbers := [name for name, kind in kinds.items() if kind == "number"]:
        return numbers
    raise ValueError(
        f"data hugging_face: no column besides the label {label!r} holds images, arrays or numbers "
        f"({', '.join(kinds) or 'there is none'}); convert texts to numbers first."
    )


def _kind(feature: Any) -> str:
    """Return what a column holds: image, array, number, or text for all else."""
    import datasets

    if isinstance(feature, datasets.Image):
        return "image"
    if isinstance(feature, datasets.Array2D | datasets.Array3D):
        return "array"
    if isinstance(feature, datasets.List):
        return "array" if _kind(feature.feature) in ("number", "array") else "text"
    if isinstance(feature, datasets.ClassLabel):
        return "number"
    numeric = isinstance(feature, datasets.Value) and feature.dtype.startswith(("int", "uint", "float", "bool"))
    return "number" if numeric else "text"


def _inputs(table: Any, names: Sequence[str]) -> Inputs:
    kind = _kind(table.features[names[0]])
    if kind == "number":
        return np.stack([_numbers(table, name) for name in names], axis=1)
    (name,) = names
    if kind == "image":
        return Pixels(_stacked(name, [_image(record[name]) for record in table.select_columns([name])]))
    values = _stacked(name, table.select_columns([name]).with_format("numpy")[:][name]).astype(np.float32)
    return _finite(name, values[:, None] if values.ndim == 3 else values)


def _image(image: Any) -> NDArray[np.uint8]:
    values = np.asarray(image if image.mode in ("L", "RGB") else image.convert("RGB"))
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def _stacked(name: str, values: Sequence[Any]) -> NDArray[Any]:
    shapes = {np.shape(value) for value in values}
    if len(shapes) != 1:
        some = ", ".join(map(str, sorted(shapes)[:3]))
        raise ValueError(
            f"data hugging_face: column {name!r} has inputs of {len(shapes)} shapes ({some}); bring all to one, by "
            "the map() of datasets, and save_to_disk."
        )
    return np.stack(list(values))


def _numbers(table: Any, name: str) -> NDArray[np.float32]:
    # A missing value of Arrow's is Python's None.
    values = table.select_columns([name]).with_format(None)[:][name]
    return _finite(name, np.array([np.nan if value is None else value for value in values], dtype=np.float32))


def _finite(name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    if missing := len(values) - int(np.isfinite(values).reshape(len(values), -1).all(axis=1).sum()):
        raise ValueError(
            f"data hugging_face: column {name!r} lacks a finite number in {missing} of {len(values)} samples; fill "
            "them in, or leave the column out of task.data_options.inputs."
        )
    return values


def _targets(train: Any, test: Any, label: str) -> tuple[TargetArray, TargetArray, int]:
    """Return the targets of both parts, and the number of outputs that a model needs."""
    import datasets

    feature = train.features[label]
    if _holds_values(feature):
        return _numbers(train, label), _numbers(test, label), 1
    parts = [table.select_columns([label]).with_format(None)[:][label] for table in (train, test)]
    # Of a column of classes, -1 means that it is not known.
    lacking = sum(value is None or value == -1 for values in parts for value in values)
    if lacking:
        raise ValueError(f"{_OPTIONS}.label={label}: {lacking} samples have no class; leave them out, by filter().")
    if isinstance(feature, datasets.ClassLabel):
        y_train, y_test = (np.array(values, dtype=np.int64) for values in parts)
        return y_train, y_test, int(feature.num_classes)
    classes = {value: number for number, value in enumerate(sorted({value for values in parts for value in values}))}
    y_train, y_test = (np.array([classes[value] for value in values], dtype=np.int64) for values in parts)
    return y_train, y_test, len(classes)


def _groups(y: TargetArray) -> IntArray:
    # Values are of no groups.
    return y if y.dtype == np.int64 else np.zeros(len(y), dtype=np.int64)


def _columns(table: Any) -> Columns:
    import datasets

    scalars = [
        name for name, kind in table.features.items() if isinstance(kind, datasets.Value | datasets.ClassLabel)
    ]
    return table.select_columns(scalars).with_format(None)[:] if scalars else {}
