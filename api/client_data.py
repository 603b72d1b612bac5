"""One client's data in memory, read: arrays, a data frame, a torch data set or one of Hugging Face."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from florets.task.data.tables.describe import names_records
from florets.task.data.tables.description import MOST_CATEGORIES
from florets.task.data.tables.table_text import is_number

if TYPE_CHECKING:
    import pandas as pd

FORMS = (
    "(x, y) of arrays, {'train': ..., 'test': ...}, a pandas DataFrame, a torch Dataset, or a Hugging Face Dataset "
    "or DatasetDict"
)
_CHANNELS = (1, 3, 4)
"""Numbers of channels that images have."""
_CELLS = (str, bool, int, float, np.generic)
"""Types of the cells of a column of objects."""


class WrongData(ValueError):
    """A client's data cannot be used; the text says what is wrong and what to do, and holds none of the data."""


def said_of(whose: str, error: WrongData) -> str:
    """Return what is wrong with some data, as a sentence about them where the text is the rest of one."""
    return f"{whose} {error}" if str(error).startswith(("is ", "has ")) else f"{whose}: {error}"


@dataclass(frozen=True)
class Arrays:
    """Inputs (n, ...), images with their channels first, and targets (n,) or rows of numbers (n, C)."""

    x: NDArray[Any]
    y: NDArray[Any]
    classes: tuple[str, ...] = ()
    """Names of the classes in the order of their labels, where the data declare them: `y` holds such names then."""


Part: TypeAlias = "Arrays | pd.DataFrame"
Parts: TypeAlias = Mapping[str, Part]
"""A client's data by the names of their files: "data", or "train" and "test"."""


def read_client(data: Any, target: str | None) -> Parts:
    """Read one client's data; raise WrongData where they cannot be used."""
    if not isinstance(data, Mapping) or set(data) == {"train"}:
        undivided = _part(data["train"] if isinstance(data, Mapping) else data, target)
        if len(undivided.y if isinstance(undivided, Arrays) else undivided) < 2:
            raise WrongData("has only one sample; give at least 2, of which one is for the test.")
        return {"data": undivided}
    if set(data) != {"train", "test"}:
        names = ", ".join(map(repr, data))
        raise WrongData(f"has the parts {names}; give 'train' and 'test', or one undivided set, which is split.")
    parts = {}
    for name in ("train", "test"):
        try:
            parts[name] = _part(data[name], target)
        except WrongData as error:
            raise WrongData(said_of(f"its {name} part", error)) from None
    if isinstance(parts["train"], Arrays) != isinstance(parts["test"], Arrays):
        raise WrongData("one of train and test is a table, the other one arrays; give both the same form.")
    return parts


def _is(module: str, kind: str, data: Any) -> bool:
    """Return whether data are of a class of a library, without importing it."""
    loaded = sys.modules.get(module)
    return loaded is not None and isinstance(data, getattr(loaded, kind))


is_frame = partial(_is, "pandas", "DataFrame")
is_hugging_face = partial(_is, "datasets", "Dataset")
is_torch_data = partial(_is, "torch.utils.data", "Dataset")


def array_of(values: Any) -> NDArray[Any]:
    """Return an array, a tensor, or nested lists of numbers or tensors, as a NumPy array."""
    for one in values if isinstance(values, list | tuple) else [values]:
        if isinstance(one, np.ma.MaskedArray) and np.ma.is_masked(one):
            raise WrongData(
                "is a masked array, whose mask would be lost; leave the masked samples out, or fill them: "
                ".filled(...)."
            )
    torch = sys.modules.get("torch")
    if torch is not None:
        if isinstance(values, list | tuple) and values and isinstance(values[0], torch.Tensor):
            return _stacked(values)
        if isinstance(values, torch.Tensor):
            values = values.detach().cpu()
            # NumPy has no bfloat16.
            return np.asarray((values.float() if values.dtype == torch.bfloat16 else values).numpy())
    try:
        return np.asarray(values)
    except ValueError:
        raise WrongData("the rows have different lengths; bring them into one shape.") from None


def inputs_of(values: Any) -> NDArray[Any]:
    """Return inputs (n, ...) as numbers, images as uint8 or float32 with the channels first."""
    if hasattr(values, "toarray"):
        raise WrongData("x is a sparse matrix; pass x.toarray().")
    x = array_of(values)
    if x.dtype.kind not in "biuf":
        what = "Python objects (rows of different lengths, words or missing values)" if x.dtype == object else x.dtype
        raise WrongData(f"x holds {what}; give real numbers in one shape, or a data frame with target=<column>.")
    if x.ndim < 2:
        raise WrongData(
            f"x has shape {x.shape}; give a row of numbers for each sample: of one number x.reshape(-1, 1)."
        )
    if not x.size:
        raise WrongData("is empty; give samples, or leave the client out.")
    if x.dtype != np.uint8:
        with np.errstate(over="ignore"):
            single = x.astype(np.float32, copy=False)
        finite = np.isfinite(single)
        if not finite.all():
            row = int(np.argwhere(~finite)[0][0])
            raise WrongData(
                f"{int((~finite).sum())} of the inputs are not finite numbers, the first in sample {row}; fill the "
                f"gaps or leave those samples out."
            )
        # What is standardised is so in all of its digits; integers may be indices.
        x = x.astype(np.float64 if x.dtype.kind == "f" else np.int64, copy=False) if x.ndim == 2 else single
    if x.ndim == 4 and x.shape[3] in _CHANNELS and x.shape[1] not in _CHANNELS:
        x = np.moveaxis(x, 3, 1)
    return np.ascontiguousarray(x)


def targets_of(values: Any) -> NDArray[Any]:
    """Return targets (n,) as integers, truth values, strings, or values; rows of numbers (n, C) are values."""
    y = array_of(values)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim > 2 or y.ndim == 0 or (y.ndim == 2 and y.dtype.kind not in "biuf"):
        raise WrongData(f"y has shape {y.shape}; give one target a sample, or a row of numbers.")
    if y.dtype.kind == "O":
        y = _unpacked(y)
    if y.dtype.kind == "S":
        y = np.char.decode(y, "utf-8", "replace")
    if y.dtype.kind == "f":
        if (missing := ~np.isfinite(y)).any():
            raise WrongData(_without_target(missing, "missing or infinite"))
        if y.ndim == 2:
            return y
        return y.astype(np.int64) if bool((y == np.floor(y)).all()) else y
    if y.dtype.kind not in "biuU":
        raise WrongData(f"y holds {y.dtype}; give class labels or names, or numbers.")
    return y


def _without_target(missing: NDArray[np.bool_], what: str) -> str:
    """Return that targets are missing: how many, and in which sample the first."""
    number, first = int(missing.sum()), int(np.argwhere(missing)[0][0])
    which = f"1 target is {what} (sample {first})"
    if number > 1:
        which = f"{number} targets are {what} (the first in sample {first})"
    return f"{which}; leave out samples without a target."


def _unpacked(y: NDArray[Any]) -> NDArray[Any]:
    """Return targets that are Python objects in an array of one type."""
    import pandas as pd

    cells, missing = y.tolist(), pd.isna(y)
    if missing.any():
        raise WrongData(_without_target(missing, "missing"))
    if not all(isinstance(cell, str) for cell in cells) and not all(isinstance(cell, int | float) for cell in cells):
        raise WrongData("y holds Python objects of several types; give strings or numbers alone.")
    return np.array(cells)


def _part(data: Any, target: str | None) -> Part:
    if is_frame(data):
        return _table(data, target)
    if is_hugging_face(data):
        return _of_hugging_face(data, target)
    if is_torch_data(data):
        return of_torch(data)
    if isinstance(data, tuple | list) and len(data) == 2:
        return arrays(*data)
    of = f" of {len(data)}" if isinstance(data, tuple | list) else ""
    raise WrongData(f"is a {type(data).__name__}{of}; give {FORMS}.")


def arrays(x: Any, y: Any, classes: tuple[str, ...] = ()) -> Arrays:
    """Return inputs with their targets; raise WrongData where they do not fit, see `inputs_of` and `targets_of`."""
    inputs, targets = inputs_of(x), targets_of(y)
    if len(inputs) != len(targets):
        raise WrongData(f"x has {len(inputs)} samples and y {len(targets)}; give one target for each sample.")
    return Arrays(inputs, targets, classes)


def _table(frame: "pd.DataFrame", target: str | None) -> "pd.DataFrame":
    """Return a data frame, checked, with no blanks around its columns' names, which are easily overlooked."""
    if not target:
        raise WrongData("is a table: name its target column, target=<column>.")
    names = list(frame.columns)
    if wrong := [name for name in names if not isinstance(name, str)]:
        raise WrongData(
            f"{len(wrong)} columns have no string as name; name them, such as "
            "frame.columns = [f'x{n}' for n in frame.columns]."
        )
    names = [name.strip() for name in names]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise WrongData(f"has several columns {twice[0]!r}; give each its own name.")
    frame = frame.set_axis(names, axis=1)
    if target not in names:
        raise WrongData(f"has no column {target!r}, the target; its columns are {', '.join(names[:20])}.")
    if not len(frame) or len(names) < 2:
        raise WrongData("has no records, or no column but the target; give some, or leave the client out.")
    for name in (name for name in names if frame[name].dtype == object):
        kinds = {type(cell).__name__ for cell in frame[name].dropna() if not isinstance(cell, _CELLS)}
        if kinds:
            raise WrongData(f"column {name!r} holds {kinds.pop()}; give numbers or words, or leave the column out.")
    return frame


def inputs_of_torch(data: Any) -> NDArray[Any]:
    """Return the inputs of a torch data set, whose samples may be pairs or inputs alone; see `inputs_of`."""
    samples = _samples_of(data)
    return inputs_of(_stacked([sample[0] if isinstance(sample, tuple | list) else sample for sample in samples]))


def declares_classes(column: "pd.Series[Any]") -> bool:
    """Return whether a frame's column is of categories or strings that look like numbers: they are names."""
    if column.dtype.kind in "iufb":
        return False
    known = column.dropna().unique()
    if column.dtype.name == "category":
        return any(is_number(str(one)) for one in known)
    return len(known) > 0 and all(isinstance(one, str) and is_number(one) for one in known)


def declares_codes(column: "pd.Series[Any]") -> bool:
    """Return whether an input's type says that its numbers are codes; many different numbers as strings are none."""
    if not declares_classes(column):
        return False
    if column.dtype.name == "category":
        return True
    words = [str(one).strip() for one in column.dropna().unique()]
    has_zeros = any(len(word) > 1 and word[0] == "0" and word.isdigit() for word in words)
    few = len(words) <= MOST_CATEGORIES and 2 * len(words) <= column.notna().sum()
    return not names_records(str(column.name)) and (has_zeros or few)


def _samples_of(data: Any) -> list[Any]:
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        raise WrongData("is a torch IterableDataset; give a map-style Dataset, with len() and [index].")
    return [data[row] for row in range(len(data))]


def of_torch(data: Any) -> Arrays:
    """Read a map-style data set sample by sample."""
    samples = _samples_of(data)
    if not all(isinstance(sample, tuple | list) and len(sample) == 2 for sample in samples):
        raise WrongData("is a torch Dataset whose samples are not pairs; each must be (input, target).")
    return arrays(_stacked([sample[0] for sample in samples]), np.array([array_of(sample[1]) for sample in samples]))


def _stacked(inputs: Sequence[Any]) -> NDArray[Any]:
    """Return inputs, tensors or pictures, in one array."""
    rows = [array_of(one) for one in inputs]
    if not rows:
        raise WrongData("is empty; give samples, or leave the client out.")
    if len({row.shape for row in rows}) > 1:
        shapes = sorted({row.shape for row in rows})
        raise WrongData(
            f"the inputs have different shapes ({shapes[0]}, {shapes[1]}, ...); bring them into one shape."
        )
    return np.stack(rows)


def _of_hugging_face(data: Any, target: str | None) -> Part:
    """Read a Hugging Face data set: one column of images or of fixed-size arrays, else a table."""
    kinds = {name: type(feature).__name__ for name, feature in data.features.items()}
    labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
    given, target = target, target or (labels[0] if len(labels) == 1 else None)
    inputs = [name for name in kinds if name != target]
    if target not in kinds or not inputs:
        raise WrongData(f"name the column of the targets, target=<column>; the columns are {', '.join(kinds)}.")
    names = {name: dict(enumerate(data.features[name].names)) for name in labels}
    wide = [name for name in inputs if kinds[name] not in ("Value", "ClassLabel")]
    if wide and len(inputs) > 1:
        raise WrongData(
            f"has the inputs {', '.join(inputs)}; keep the one that models read: "
            f".select_columns(['{wide[0]}', '{target}'])."
        )
    if not wide:
        frame = data.with_format(None).to_pandas()
        return _table(frame.assign(**{name: frame[name].map(of) for name, of in names.items()}), given)
    columns = data.with_format("numpy")
    y = columns[target][:]
    # Minus one marks what has no label.
    y = [names[target].get(one) for one in y.tolist()] if target in names else y
    return arrays(_stacked(columns[inputs[0]][:]), y, tuple(names.get(target, {}).values()))
