"""`florets.Federation`: clients whose data are in memory, and the folder that the pipeline reads them from."""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from florets.api.client_data import (
    FORMS,
    Arrays,
    Parts,
    WrongData,
    declares_codes,
    is_frame,
    is_hugging_face,
    is_torch_data,
    read_client,
    said_of,
)
from florets.api.targets import targets_of_arrays, targets_of_tables
from florets.conf.problems import ConfigError

if TYPE_CHECKING:
    import pandas as pd

_FOLDER = "federations"
_NODE_FILE = "node.toml"
_MOST_PROBLEMS = 10
# Neither a device of Windows, nor with a blank at its end, nor the name of a client that cannot have its own.
_FOLDER_NAME = re.compile(r"(?i)(?!(con|prn|aux|nul|com\d|lpt\d|client-\d+)$)\w([\w -]{0,79}\w)?", re.ASCII)
# As `to_csv` writes it: nothing is left to be detected.
_FORM = 'header = true\nseparator = ","\ndecimal = "."\n'


class Federation:
    """Clients with data in memory.

    The first use writes them below the results folder, ``federations/<hash>/``, one folder a client, as data of one's
    own lie on a disk; a later use of equal data takes that folder again. Floats are kept as float32, bytes as they
    are: the pixels 0 to 255, which become 0 to 1.

    Parameters
    ----------
    clients
        A list of clients' data, called by their places from 0, or a mapping from their names; with `owner` one data
        frame.
        A client's data are ``(x, y)`` of arrays, lists or tensors, a pandas DataFrame, a torch Dataset (map-style), a
        Hugging Face Dataset, or a mapping of two of these, ``{"train": ..., "test": ...}``, such as a DatasetDict. An
        undivided set is split into train and test.
    target : str, optional
        Column of the targets, of data frames and Hugging Face's data sets.
    owner : str, optional
        Column that says whose each record is.
    clusters : sequence, mapping or Series, optional
        True cluster of each client, for figures such as the ARI alone: in the order of the clients; a mapping or a
        pandas Series goes by the clients' names. All are given, or none.
    classes : sequence, optional
        The classes in the order of their labels; by default those that occur.
    regression : bool, optional
        Whether targets are values; by default they are where some have fractions.

    Attributes
    ----------
    names : tuple of str
        Of the clients, in their order.

    Raises
    ------
    ConfigError
        With every client whose data cannot be used, and why; it holds none of the data.
    """

    def __init__(
        self,
        clients: Any,
        *,
        target: str | None = None,
        owner: str | None = None,
        clusters: Sequence[Any] | Mapping[str, Any] | None = None,
        classes: Sequence[Any] | None = None,
        regression: bool | None = None,
    ) -> None:
        # One text is a list of one, and not of its letters.
        classes = [classes] if isinstance(classes, str) else classes
        self._target = target.strip() if isinstance(target, str) else None
        self._clients: dict[str, Parts] = {}
        problems = []
        for name, data in _by_name(clients, owner).items():
            try:
                self._clients[name] = read_client(data, self._target)
            except WrongData as error:
                problems.append(said_of(f"client {name}", error))
        if problems:
            more = f"clients: {len(problems) - _MOST_PROBLEMS} more cannot be used."
            raise ConfigError(problems[:_MOST_PROBLEMS] + [more] * (len(problems) > _MOST_PROBLEMS))
        self.names = tuple(self._clients)
        self._clusters = None if clusters is None else _numbered(clusters, self.names)
        self._tables = {
            name: [part for part in own.values() if not isinstance(part, Arrays)]
            for name, own in self._clients.items()
        }
        arrays = {
            name: [part for part in own.values() if isinstance(part, Arrays)] for name, own in self._clients.items()
        }
        self.is_table = any(self._tables.values())
        """Whether the clients' data are tables."""
        self._codes: list[str] = []
        if self.is_table:
            if mixed := next((name for name, own in arrays.items() if own), ""):
                raise ConfigError(
                    f"client {mixed} has arrays and the others have tables; give all clients the same form."
                )
            if classes is not None:
                raise ConfigError("classes: of data frames the cells of the target name them; leave classes out.")
            columns = [frame[self._target] for own in self._tables.values() for frame in own]
            self._targets = targets_of_tables(columns, regression)
            self._codes = self._codes_of_frames()
            is_declared = bool(self._targets.regression or self._targets.classes)
            self._regression = self._targets.regression if is_declared else regression
        else:
            _refuse_other_inputs(arrays)
            self._targets = targets_of_arrays(arrays, classes, regression)
            self._shape = arrays[self.names[0]][0].x.shape[1:]
        self._declares_targets = classes is not None or regression is True

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        what = f"tables with target {self._target!r}" if self.is_table else f"inputs of shape {self._shape}"
        return f"<florets.Federation of {len(self)} clients: {what}>"

    @property
    def has_rows(self) -> bool:
        """Whether each target is a row of numbers."""
        return self._targets.several

    @property
    def settings(self) -> dict[str, Any]:
        """Keys of the command that describe the data, but for their folder."""
        if self._targets.several:
            # Whether these are values is for the run's loss to say.
            return {}
        loss = {"task.loss": "squared_error"} if self._targets.regression else {}
        classes = {"task.data_options.classes": list(self._targets.classes)} if self._targets.classes else {}
        if self.is_table:
            regression = {} if self._regression is None else {"task.table.regression": self._regression}
            return {"task.table.target": self._target, **regression, **classes, **loss}
        return {"task.data_options.regression": True, **loss} if self._targets.regression else classes

    @property
    def form(self) -> dict[str, Any]:
        """Keys of the command that declare the form of arrays; none unless classes or a regression were given."""
        if self.is_table or not self._declares_targets:
            return {}
        return {
            "task.partition_options.input_shape": [1, *self._shape] if len(self._shape) == 2 else list(self._shape),
            "task.partition_options.num_outputs": max(len(self._targets.classes), 1),
        }

    def write(self, results_dir: Path) -> Path:
        """Write the data below a results folder, unless equal data lie there, and return their folder."""
        root = results_dir / _FOLDER
        try:
            root.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=".part-", dir=root))
            try:
                for place in range(len(self)):
                    self._write_client(place, aside)
                files = sorted(path.relative_to(aside) for path in aside.rglob("*") if path.is_file())
                digest = hashlib.sha256()
                for file in files:
                    digest.update(f"{file}\0".encode() + hashlib.sha256((aside / file).read_bytes()).digest())
                folder = root / digest.hexdigest()[:16]
                # Somebody may have cleaned up, or the disk was full.
                if not all((folder / file).is_file() and (folder / file).stat().st_size for file in files):
                    shutil.rmtree(folder, ignore_errors=True)
                    try:
                        aside.rename(folder)
                    except OSError:
                        # Another process has written the same data.
                        if not folder.is_dir():
                            raise
            finally:
                shutil.rmtree(aside, ignore_errors=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(f"results_dir={results_dir}: cannot be written ({reason}); name another.") from None
        return folder

    def _write_client(self, place: int, root: Path) -> None:
        """Write one client's files, and what its node's file has to say."""
        name, folder = self.names[place], root / self._folder_of(place)
        folder.mkdir()
        for part, content in self._clients[name].items():
            if isinstance(content, Arrays):
                np.savez(folder / f"{part}.npz", x=content.x, y=self._targets.written(content.y))
            else:
                (folder / f"{part}.csv").write_bytes(csv_of(content))
        toml = [f"client-id = {json.dumps(name, ensure_ascii=False)}\n"] if folder.name != name else []
        toml += [f"true-cluster = {self._clusters[place]}\n"] if self._clusters is not None else []
        codes = [code for code in self._codes if all(code in frame for frame in self._tables[name])]
        toml += [f"categorical = {json.dumps(codes, ensure_ascii=False)}\n"] if codes else []
        toml += [_FORM] if self.is_table else []
        if toml:
            (folder / _NODE_FILE).write_text("".join(toml), encoding="utf-8")

    def _folder_of(self, place: int) -> str:
        """Return the folder of a client: its name, unless a file system could refuse or confuse that."""
        name = self.names[place]
        # Names that differ in case alone are one folder to some file systems.
        others = {other.lower() for other in self.names[:place] + self.names[place + 1 :]}
        if _FOLDER_NAME.fullmatch(name) and name.lower() not in others:
            return name
        return f"client-{place:0{len(str(len(self)))}d}"

    def _codes_of_frames(self) -> list[str]:
        """Return the inputs whose numbers are categories, since some client's frame declares them so."""
        frames = [frame for own in self._tables.values() for frame in own]
        codes = dict.fromkeys(
            str(name)
            for frame in frames
            for name, column in frame.items()
            if name != self._target and declares_codes(column)
        )
        for name in [*codes, *([self._target] if self._targets.classes else [])]:
            for client, own in self._tables.items():
                if any(name in frame and _has_fractions(frame[name]) for frame in own):
                    raise ConfigError(
                        f"client {client}: column {name!r} has fractions, and other clients' frames declare it as "
                        "categories or strings; give all the same type."
                    )
        return list(codes)


def csv_of(frame: "pd.DataFrame") -> bytes:
    """Return a data frame as a table's file, without its index."""
    return frame.to_csv(index=False, lineterminator="\n").encode()


def _by_name(clients: Any, owner: str | None) -> dict[str, Any]:
    """Return each client's data by its name."""
    # Flower, which takes a second that a mistyped key should not.
    from florets.task.wire.replies import key_problem

    if owner is not None:
        if not is_frame(clients):
            raise ConfigError(f"owner={owner}: needs one data frame of all clients.")
        found = _by_owner(clients, owner)
    elif isinstance(clients, Mapping):
        found = {str(name): data for name, data in clients.items()}
        if len(found) < len(clients):
            raise ConfigError("clients: two names are the same as strings; give each client a different one.")
        if found and set(found) <= {"train", "test"}:
            raise ConfigError(
                "clients: these are the parts of one client; give a list of clients, or a mapping from names."
            )
    else:
        found = _of_list(clients)
    if not found:
        raise ConfigError(f"clients: none is given; give {FORMS} for each client.")
    if problems := [f"clients: the name {name!a} {text}." for name in found if (text := key_problem(name))]:
        raise ConfigError(problems[:_MOST_PROBLEMS])
    return found


def _of_list(clients: Any) -> dict[str, Any]:
    if is_frame(clients) or is_hugging_face(clients):
        raise ConfigError(
            "clients: one data frame or data set; name the column that says which client a record belongs to, "
            "owner=<column>, or give a list of them."
        )
    if isinstance(clients, str | bytes | np.ndarray) or is_torch_data(clients) or not isinstance(clients, Iterable):
        raise ConfigError(
            f"clients: is one {type(clients).__name__}; give a list with {FORMS} for each client, or a mapping."
        )
    each = list(clients)
    digits = len(str(max(len(each) - 1, 0)))
    return {f"{place:0{digits}d}": data for place, data in enumerate(each)}


def _by_owner(data: "pd.DataFrame", owner: str) -> dict[str, Any]:
    """Return the records of a data frame by the column that says whose they are."""
    names = {str(name).strip(): name for name in data.columns}
    if str(owner).strip() not in names:
        raise ConfigError(f"owner={owner}: there is no such column; there are {', '.join(list(names)[:20])}.")
    owner = names[str(owner).strip()]
    if missing := int(data[owner].isna().sum()):
        remedy = f".dropna(subset=[{owner!r}])"
        raise ConfigError(f"owner={owner}: {missing} records name no owner; leave them out, {remedy}.")
    groups = data.drop(columns=owner).groupby(data[owner].astype(str).to_numpy())
    return {str(name): records for name, records in groups}


def _numbered(clusters: Any, names: Sequence[str]) -> list[int]:
    """Return each client's true cluster as a number: integers as they are, others in their order."""
    if isinstance(clusters, str | bytes) or not isinstance(clusters, Iterable):
        raise ConfigError(f"clusters: is a {type(clusters).__name__}; give one for each client, in order or by name.")
    if hasattr(clusters, "items"):
        given = {str(name): one for name, one in clusters.items()}
        if given.keys() != set(names):
            first = ", ".join(names[:5])[:100] + (", ..." if len(names) > 5 else "")
            raise ConfigError(f"clusters: give one for each client by its name ({first}), or a list in their order.")
        clusters = [given[name] for name in names]
    each = [one.item() if isinstance(one, np.generic) else one for one in clusters]
    if len(each) != len(names):
        raise ConfigError(f"clusters: there are {len(each)}, and {len(names)} clients; give each client one.")
    for name, one in zip(names, each, strict=True):
        if not isinstance(one, str | int | float) or one != one:
            raise ConfigError(f"clusters: that of client {name!r} is neither a number nor a name; give all, or none.")
    if all(isinstance(one, int) and one >= 0 for one in each):
        return [int(one) for one in each]
    order = list(dict.fromkeys(map(str, each)))
    return [order.index(str(one)) for one in each]


def _refuse_other_inputs(clients: Mapping[str, Sequence[Arrays]]) -> None:
    """Raise ConfigError where clients have inputs of different shapes or scales of pixels."""
    parts = [(name, part.x) for name, own in clients.items() for part in own]
    first, reference = parts[0]
    for name, x in parts[1:]:
        if x.shape[1:] != reference.shape[1:]:
            of_both = f"have shape {x.shape[1:]}, and those of {first} {reference.shape[1:]}"
            raise ConfigError(f"clients: the inputs of {name} {of_both}; bring them into one shape.")
        if (x.dtype == np.uint8) != (reference.dtype == np.uint8):
            of_both = f"are {x.dtype}, and those of {first} {reference.dtype}"
            rule = "bytes are pixels, 0 to 255, and become 0 to 1: give all clients the same type"
            raise ConfigError(f"clients: the inputs of {name} {of_both}; {rule}.")


def _has_fractions(column: "pd.Series[Any]") -> bool:
    values = column.dropna().to_numpy()
    return column.dtype.kind == "f" and bool((values != np.floor(values)).any())
