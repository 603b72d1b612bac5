"""`florets.Federation`: clients whose data are in memory, and the folder that the pipeline reads them from."""

import hashlib
import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from florets.api.client_data import (
    FORMS,
    Arrays,
    ClientData,
    Table,
    WrongData,
    declares_classes,
    declares_codes,
    is_frame,
    is_hugging_face,
    is_missing,
    is_series,
    is_torch_data,
    of_whom,
    read_client,
)
from florets.api.targets import Targets, agree_on_targets, refuse_few_fractions
from florets.conf.problems import ConfigError
from florets.task.data.tables.agreed_target import natural_order
from florets.task.data.tables.table_text import class_name

if TYPE_CHECKING:
    import pandas as pd

_FOLDER = "federations"
_LABELS = "federation.json"
"""File in a federation's folder: the targets as they were given."""
_NODE_FILE = "node.toml"
_MOST_PROBLEMS = 10
_MOST_LABELS = 1000
"""Classes whose targets are kept; a target with more of them holds values."""
Labels = dict[str, str | bool | int | float]
"""Targets as they were given, by the names of their classes."""
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
        frame or Hugging Face data set.
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
        given = _by_name(clients, owner)
        self._clients: dict[str, ClientData] = {}
        problems = []
        for name, data in given.items():
            try:
                self._clients[name] = read_client(data, target)
            except WrongData as error:
                problems.append(of_whom(f"client {name}", error))
        if problems:
            more = f"clients: {len(problems) - _MOST_PROBLEMS} more cannot be used."
            raise ConfigError(problems[:_MOST_PROBLEMS] + [more] * (len(problems) > _MOST_PROBLEMS))
        self.names = tuple(self._clients)
        self._clusters = None if clusters is None else _numbered(clusters, self.names)
        _refuse_mixed(self._clients)
        self._tables = {name: _tables(own) for name, own in self._clients.items() if _tables(own)}
        self._declares_targets = classes is not None or regression is True
        self._targets = self._agree(classes, regression)
        is_declared = self._targets.regression or (self.is_table and self._targets.classes)
        self._regression = self._targets.regression if is_declared else regression
        self._codes = _codes(self._tables)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        if self.is_table:
            what = f"tables with target {self._target!r}"
        else:
            what = f"inputs of shape {_arrays(self._clients[self.names[0]])[0].x.shape[1:]}"
        return f"<florets.Federation of {len(self)} clients: {what}>"

    @property
    def is_table(self) -> bool:
        """Whether the clients' data are tables."""
        return bool(self._tables)

    @property
    def has_rows(self) -> bool:
        """Whether each target is a row of numbers."""
        return self._targets.several

    @property
    def _target(self) -> str:
        return self._tables[self.names[0]][0].target

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
        shape = _arrays(self._clients[self.names[0]])[0].x.shape[1:]
        return {
            "task.partition_options.input_shape": [1, *shape] if len(shape) == 2 else list(shape),
            "task.partition_options.num_outputs": max(len(self._targets.classes), 1),
        }

    def write(self, results_dir: Path) -> Path:
        """Write the data below a results folder, unless equal data lie there, and return their folder.

        Raises
        ------
        ConfigError
            If the folder cannot be written.
        """
        files = {name: self._files(place) for place, name in enumerate(self.names)}
        labels = self._labels()
        root = results_dir / _FOLDER
        folder = root / _digest(files, labels)
        if self._is_whole(files, folder):
            return folder
        try:
            shutil.rmtree(folder, ignore_errors=True)
            self._write(files, labels, folder)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError(f"results_dir={results_dir}: cannot be written ({reason}); name another.") from None
        return folder

    def _is_whole(self, files: Mapping[str, Mapping[str, Arrays | bytes]], folder: Path) -> bool:
        """Whether a folder has what was written to it: somebody may have cleaned up, or the disk was full."""
        paths = [folder / self._folder_of(place) / file for place, own in enumerate(files.values()) for file in own]
        return all(path.is_file() and path.stat().st_size for path in [*paths, folder / _LABELS])

    def _write(self, files: Mapping[str, Mapping[str, Arrays | bytes]], labels: Labels, folder: Path) -> None:
        """Write the whole folder aside, and put it in its place."""
        root = folder.parent
        root.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".part-", dir=root))
        try:
            for place, name in enumerate(files):
                own = aside / self._folder_of(place)
                own.mkdir()
                for file, content in files[name].items():
                    if isinstance(content, Arrays):
                        np.savez(own / file, x=content.x, y=content.y)
                    else:
                        (own / file).write_bytes(content)
            (aside / _LABELS).write_text(json.dumps(labels, ensure_ascii=False), encoding="utf-8")
            try:
                aside.rename(folder)
            except OSError:
                # Another process has written the same data.
                if not folder.is_dir():
                    raise
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _labels(self) -> Labels:
        """Return the clients' targets as they were given, by the names of their classes; none of values.

        Where a table cannot tell two targets apart, such as " M" and "M", the name stays.
        """
        if self._targets.regression:
            return {}
        if self.is_table:
            columns = [part.frame[part.target] for own in self._tables.values() for part in own]
            cells = {cell for column in columns for cell in column.dropna().unique().tolist()}
            named = [(class_name(cell), cell) for cell in cells if isinstance(cell, str | bool | int | float)]
        else:
            parts = [part for own in self._clients.values() for part in _arrays(own)]
            cells = {cell for part in parts for cell in np.unique(part.y).tolist()}
            named = [(str(cell), cell) for cell in cells]
        if len(named) > _MOST_LABELS:
            return {}
        count = Counter(name for name, _ in named)
        return {name: cell for name, cell in sorted(named, key=str) if count[name] == 1}

    def _agree(self, classes: Sequence[Any] | None, regression: bool | None) -> Targets:
        if not self.is_table:
            return agree_on_targets({name: _arrays(own) for name, own in self._clients.items()}, classes, regression)
        if classes is not None:
            raise ConfigError("classes: of data frames the cells of the target name them; leave classes out.")
        columns = [part.frame[part.target] for own in self._tables.values() for part in own]
        if not regression and any(map(declares_classes, columns)):
            _refuse_fractions(self._tables, self._target)
            return Targets(classes=_class_names(columns))
        if regression is None and all(column.dtype.kind in "iuf" for column in columns):
            values = {
                name: [part.frame[part.target].dropna().to_numpy() for part in own]
                for name, own in self._tables.items()
            }
            refuse_few_fractions(values)
        # Where it is not said, the clients agree on it once they have described their columns.
        return Targets(bool(regression))

    def _folder_of(self, place: int) -> str:
        """Return the folder of a client: its name, unless a file system could refuse or confuse that."""
        name = self.names[place]
        # Names that differ in case alone are one folder to some file systems.
        others = {other.lower() for other in self.names[:place] + self.names[place + 1 :]}
        if _FOLDER_NAME.fullmatch(name) and name.lower() not in others:
            return name
        return f"client-{place:0{len(str(len(self)))}d}"

    def _files(self, place: int) -> dict[str, Arrays | bytes]:
        """Return the files of one client by their names: arrays, or the bytes of a text."""
        name = self.names[place]
        data = self._clients[name]
        files: dict[str, Arrays | bytes] = {}
        for part, content in data.parts.items():
            if isinstance(content, Arrays):
                files[f"{part}.npz"] = Arrays(content.x, self._targets.written(content.y))
            else:
                files[f"{part}.csv"] = _csv(content.frame)
        toml = [f"client-id = {json.dumps(name, ensure_ascii=False)}\n"] if self._folder_of(place) != name else []
        toml += [f"true-cluster = {self._clusters[place]}\n"] if self._clusters is not None else []
        codes = [name for name in self._codes if all(name in part.frame for part in _tables(data))]
        toml += [f"categorical = {json.dumps(codes, ensure_ascii=False)}\n"] if codes else []
        toml += [_FORM] if self.is_table else []
        if toml:
            files[_NODE_FILE] = "".join(toml).encode()
        return files


def original_labels(folder: Path) -> Labels:
    """Return the targets that a federation was given with, by the names of their classes; of other folders none."""
    try:
        found = json.loads((folder / _LABELS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    is_whole = isinstance(found, dict) and all(isinstance(one, str | bool | int | float) for one in found.values())
    return found if is_whole else {}


def write_table(frame: "pd.DataFrame", folder: Path) -> Path:
    """Write a data frame as a site's table into an empty folder, and return the file."""
    (folder / _NODE_FILE).write_text(_FORM, encoding="utf-8")
    path = folder / "data.csv"
    path.write_bytes(_csv(frame))
    return path


def _csv(frame: "pd.DataFrame") -> bytes:
    """Return a data frame as a table's file, without its index."""
    return frame.to_csv(index=False, lineterminator="\n").encode()


def _by_name(clients: Any, owner: str | None) -> dict[str, Any]:
    """Return each client's data by its name."""
    # Flower, which takes a second that a mistyped key should not.
    from florets.task.wire.replies import key_problem

    if owner is not None:
        if not is_frame(clients) and not is_hugging_face(clients):
            raise ConfigError(f"owner={owner}: needs one data frame or Hugging Face Dataset of all clients.")
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


def _by_owner(data: Any, owner: str) -> dict[str, Any]:
    """Return the records of a data frame or a Hugging Face data set by the column that says whose they are."""
    import pandas as pd

    if not isinstance(owner, str):
        raise ConfigError(f"owner={owner!r} is no string; give a column's name.")
    is_table = is_frame(data)
    given = list(data.columns if is_table else data.features)
    names = [str(name).strip() for name in given]
    if owner.strip() in names:
        owner = given[names.index(owner.strip())]
    else:
        raise ConfigError(f"owner={owner}: there is no such column; there are {', '.join(names[:20])}.")
    cells = data[owner] if is_table else pd.Series(data.with_format(None)[owner][:], dtype=object)
    if missing := int(cells.isna().sum()):
        remedy = f".dropna(subset=[{owner!r}])" if is_table else "with .filter()"
        raise ConfigError(f"owner={owner}: {missing} records name no owner; leave them out, {remedy}.")
    rest = data.drop(columns=owner) if is_table else data.remove_columns(owner)
    whose = cells.astype(str).to_numpy()
    take = rest.iloc.__getitem__ if is_table else rest.select
    return {name: take(np.flatnonzero(whose == name)) for name in sorted(set(whose))}


def _numbered(clusters: Any, names: Sequence[str]) -> list[int]:
    """Return each client's true cluster as a number: integers as they are, others in their order."""
    if isinstance(clusters, str | bytes) or not isinstance(clusters, Iterable):
        raise ConfigError(
            f"clusters: is a {type(clusters).__name__}; give one for each client, in their order or by name. A "
            "column of a data frame is frame.groupby(<owner>)[<column>].first()."
        )
    by_name: Any = clusters if isinstance(clusters, Mapping) or is_series(clusters) else None
    if by_name is not None:
        given = {str(name): one for name, one in by_name.items()}
        if given.keys() != set(names):
            first = ", ".join(names[:5])[:100] + (", ..." if len(names) > 5 else "")
            raise ConfigError(f"clusters: give one for each client by its name ({first}), or a list in their order.")
        each = [given[name] for name in names]
    else:
        each = list(clusters)
    if len(each) != len(names):
        raise ConfigError(f"clusters: there are {len(each)}, and {len(names)} clients; give each client one.")
    plain = [one.item() if isinstance(one, np.generic) else one for one in each]
    if wrong := [
        name
        for name, one in zip(names, plain, strict=True)
        if is_missing(one) or not isinstance(one, str | int | float)
    ]:
        raise ConfigError(f"clusters: that of client {wrong[0]!r} is neither a number nor a name; give all, or none.")
    if all(isinstance(one, int) and one >= 0 for one in plain):
        return [int(one) for one in plain]
    order = list(dict.fromkeys(map(str, plain)))
    return [order.index(str(one)) for one in plain]


def _arrays(data: ClientData) -> list[Arrays]:
    return [part for part in data.parts.values() if isinstance(part, Arrays)]


def _tables(data: ClientData) -> list[Table]:
    return [part for part in data.parts.values() if isinstance(part, Table)]


def _refuse_mixed(clients: Mapping[str, ClientData]) -> None:
    """Raise ConfigError where clients have different forms, shapes, or scales of pixels."""
    tables = [name for name, data in clients.items() if _tables(data)]
    rest = [name for name in clients if name not in tables]
    if tables and rest:
        raise ConfigError(f"clients: {tables[0]} has a table and {rest[0]} arrays; give all clients the same form.")
    targets = {table.target: name for name, data in clients.items() for table in _tables(data)}
    if len(targets) > 1:
        (first, whose), (second, others) = list(targets.items())[:2]
        raise ConfigError(
            f"clients: the target of {whose} is {first!r}, of {others} {second!r}; name it, target=<column>."
        )
    parts = [(name, part.x) for name, data in clients.items() for part in _arrays(data)]
    for name, x in parts[1:]:
        whose, reference = parts[0]
        if x.shape[1:] != reference.shape[1:]:
            of_both = f"have shape {x.shape[1:]}, and those of {whose} {reference.shape[1:]}"
            raise ConfigError(f"clients: the inputs of {name} {of_both}; bring them into one shape.")
        if (x.dtype == np.uint8) != (reference.dtype == np.uint8):
            of_both = f"are {x.dtype}, and those of {whose} {reference.dtype}"
            rule = "bytes are pixels, 0 to 255, and become 0 to 1: give all clients the same type"
            raise ConfigError(f"clients: the inputs of {name} {of_both}; {rule}.")


def _class_names(columns: Iterable["pd.Series[Any]"]) -> tuple[str, ...]:
    """Return the classes of targets that are categories or strings, those that occur, in their natural order."""
    return tuple(
        sorted({class_name(one) for column in columns for one in column.dropna().unique()}, key=natural_order)
    )


def _codes(tables: Mapping[str, Sequence[Table]]) -> list[str]:
    """Return the inputs whose numbers are categories, since some client's frame declares them so."""
    parts = [part for own in tables.values() for part in own]
    found = dict.fromkeys(
        str(name)
        for part in parts
        for name, column in part.frame.items()
        if name != part.target and declares_codes(column)
    )
    for name in found:
        _refuse_fractions(tables, name)
    return list(found)


def _refuse_fractions(tables: Mapping[str, Sequence[Table]], name: str) -> None:
    """Refuse a column that is declared as categories at some clients and has fractions at others."""
    for key, own in tables.items():
        if any(name in part.frame and _has_fractions(part.frame[name]) for part in own):
            raise ConfigError(
                f"client {key}: column {name!r} has fractions, and other clients' frames declare it as categories or "
                "strings; give all the same type."
            )


def _has_fractions(column: "pd.Series[Any]") -> bool:
    values = column.dropna().to_numpy()
    return column.dtype.kind == "f" and bool((values != np.floor(values)).any())


def _digest(files: Mapping[str, Mapping[str, Arrays | bytes]], labels: Labels) -> str:
    """Return a hash of all clients' names and files, and of what their targets were."""
    found = hashlib.sha256(json.dumps(labels).encode())
    for name, own in files.items():
        for file, content in own.items():
            parts = [content.x, content.y] if isinstance(content, Arrays) else [np.frombuffer(content, np.uint8)]
            heads = [(part.dtype.str, part.shape) for part in parts]
            found.update(json.dumps([name, file, heads]).encode())
            for part in parts:
                found.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return found.hexdigest()[:16]
