"""`SiteTable`: the records of one site, and their split into training and test set, subject by subject."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset
from florets.task.data.splits import TEST_SHARE, split_rows
from florets.task.data.tables.declaration import Declaration, site_of
from florets.task.data.tables.describe import describe_table, repeating_group, target_name
from florets.task.data.tables.description import MOST_GUESSED, Description
from florets.task.data.tables.names import as_numbers
from florets.task.data.tables.preprocessing import Preprocessing
from florets.task.data.tables.read import Table, check_target, read_table
from florets.task.data.tables.table_text import class_name
from florets.task.randomness import Purpose, generator
from florets.task.spec import DECLARED, PREPARED, ROWS_OF

if TYPE_CHECKING:
    import pandas as pd


_MOST_READ = 32
_READ: dict[tuple[Path, int, int, str], Table] = {}
"""Files as they were read, by their state and what was declared of them."""


@dataclass(frozen=True)
class SiteTable:
    """A site's table: all records with a target, and the rows of its two sets."""

    declared: Declaration
    table: Table
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    untargeted: int = 0
    """Records without a target, which were left out."""
    group: str = ""
    """Column whose equal values are one subject's; before the agreement, a repeating id that the site finds."""
    regression: bool | None = None
    """Whether the split took the targets for values; None where the files are split already."""
    preprocessing: Preprocessing | None = None
    """As the sites agreed; None before that."""

    @classmethod
    def read(
        cls,
        paths: Sequence[Path],
        values: Mapping[str, Any],
        seed: int,
        client: int = 0,
        test_share: float = TEST_SHARE,
    ) -> "SiteTable":
        """Read a site's files: an undivided one, which is split, or a training and a test set.

        `values` are the task's `table`; the run's seed and the site's number draw the split.
        """
        import pandas as pd

        declared = Declaration.of(values.get(DECLARED, {}))
        site = site_of(paths[0])
        categorical = [*declared.categorical, *site.categorical]
        # The site alone says how much is sent.
        declared = replace(declared, min_count=site.min_count, categorical=categorical)
        prepared = Preprocessing.of(values[PREPARED]) if values.get(PREPARED) else None
        parts = [read_once(path, declared) for path in paths]
        frames, notes = [part.frame for part in parts], parts[0].notes
        for path, frame in zip(paths[1:], frames[1:], strict=True):
            if set(frame.columns) != set(frames[0].columns):
                raise ValueError(f"{path.name} has other columns than {paths[0].name}: give both the same.")
        owner, rows_of = declared.owner, values.get(ROWS_OF)
        if rows_of is not None:
            if owner not in frames[0].columns:
                raise ValueError(f"the table has no column {owner!r} (task.table.owner).")
            frames = [frame[frame[owner] == rows_of] for frame in frames]
        target = prepared.target if prepared else target_name(declared, frames[0].columns)
        if target not in frames[0].columns:
            raise ValueError(f"the table has no column {target!r}, the target.")
        if prepared is None:
            # Where the sites found the group among their columns, one may have no such column.
            if declared.group and declared.group not in frames[0].columns:
                raise ValueError(f"the table has no column {declared.group!r} (task.table.group).")
            for path, part, frame in zip(paths, parts, frames, strict=True):
                check_target(path, part, frame[target], declared)
        kept = [frame.dropna(subset=[target]) for frame in frames]
        if not all(map(len, kept)):
            raise ValueError(f"no record of a file has a target {target!r}.")
        untargeted = sum(len(frame) for frame in frames) - sum(len(frame) for frame in kept)
        frame = pd.concat(kept, ignore_index=True) if len(kept) > 1 else kept[0].reset_index(drop=True)
        if rows_of is not None:
            frame = frame.drop(columns=owner)
        # As the sites will agree, so that no test record is described.
        group = declared.group or (repeating_group(frame, declared) if prepared is None else "")
        group = group if group in frame.columns else ""
        regression = None
        if len(kept) > 1:
            train, test = np.split(np.arange(len(frame)), [len(kept[0])])
            subjects = subjects_of(frame, group)
            both = set() if subjects is None else set(subjects[train].tolist()) & set(subjects[test].tolist())
            if both:
                # The split is the site's own: it is told, and kept.
                notes = (*notes, f"{len(both)} subjects of the group's column have records in both files")
        else:
            regression = prepared.is_regression if prepared else _is_regression(frame[target], declared)
            strata = _strata(frame[target], declared, regression)
            rng, whose = generator(seed, 0, Purpose.DATA, client), subjects_of(frame, group)
            train, test = split_rows(strata, whose, test_share, rng, regression, declared.stratify)
        guessed = any(part.guessed for part in parts)
        table = Table(frame, notes, guessed=guessed)
        return cls(declared, table, train, test, untargeted, group, regression, prepared)

    def describe(self) -> Description:
        """Return what the site says of its data before training."""
        found = describe_table(self.table, self.declared, self.train, subjects_of(self.table.frame, self.group))
        return replace(
            found,
            untargeted=self.untargeted,
            group=self.group,
            regression=self.regression,
            unseen=self._unseen(found.target.name if found.target else ""),
        )

    def _unseen(self, target: str) -> int:
        """Return how many test records are of a class that no site trains on; before the agreement, not this site."""
        if self.preprocessing is not None:
            return len(self.test) - len(self.dataset(self.preprocessing).y_test)
        column = self.table.frame[target]
        trained = column.iloc[self.train]
        if self.declared.classes or (self.regression or _is_regression(trained, self.declared)):
            return 0
        names = set(trained.map(class_name))
        return int((~column.iloc[self.test].map(class_name).isin(names)).sum())

    def _tested(self, preprocessing: Preprocessing) -> NDArray[np.int64]:
        """Return the rows of the test set, without those of classes that no site trains on.

        Of declared classes every record must be of one, as in training.
        """
        if preprocessing.is_regression or self.declared.classes:
            return self.test
        is_known = preprocessing.labels(self.table.frame) >= 0
        if not is_known[self.train].all():
            # The site cannot take part; its error counts all of its records.
            return self.test
        known = is_known[self.test]
        if not known.any():
            raise ValueError(f"all {len(known)} test records have classes that no site trains on: give it others.")
        return self.test[known]

    def dataset(self, preprocessing: Preprocessing) -> Dataset:
        """Return the site's data as a model takes them."""
        frame = self.table.frame
        preprocessing.check(frame)
        train, test = self.train, self._tested(preprocessing)
        x = preprocessing.inputs(frame).x
        y = preprocessing.targets(frame.iloc[np.concatenate([train, test])])
        y_train, y_test = np.split(y, [len(train)])
        # Values do not group records.
        classes = [np.zeros(len(y), dtype=np.int64) if preprocessing.is_regression else y for y in (y_train, y_test)]
        owner, subjects = self.declared.owner, subjects_of(frame, self.group)
        owners = frame[owner].astype(str).to_numpy(dtype=np.str_) if owner in frame.columns else None
        return Dataset(
            x[train],
            y_train,
            x[test],
            y_test,
            max(len(preprocessing.classes), 1),
            classes[0],
            classes[1],
            owners_train=None if owners is None else owners[train],
            owners_test=None if owners is None else owners[test],
            subjects_train=None if subjects is None else subjects[train],
            target_scale=preprocessing.target_std,
        )


def _is_regression(targets: "pd.Series[Any]", declared: Declaration) -> bool:
    """Return whether a site takes its targets for values, before the sites have agreed."""
    if declared.regression is not None or declared.classes:
        return bool(declared.regression)
    numbers = as_numbers(targets.astype(object))
    return bool(np.isfinite(numbers).all()) and len(np.unique(numbers)) > MOST_GUESSED


def _strata(targets: "pd.Series[Any]", declared: Declaration, regression: bool) -> NDArray[np.float64]:
    """Return the values (n,) along which, or the numbers of the classes in each of which, records are split."""
    targets = targets.astype(object)
    if regression:
        return as_numbers(targets)
    raws = {raw: name for name, raws in declared.classes.items() for raw in raws}
    known = targets.map(lambda text: raws.get(str(text), str(text))).to_numpy(dtype=np.str_)
    return np.unique(known, return_inverse=True)[1].astype(np.float64)


def subjects_of(frame: "pd.DataFrame", group: str) -> NDArray[np.int64] | None:
    """Return a number for whose each record is, int64 (n,), one without a subject on its own; None without groups."""
    import pandas as pd

    if group not in frame.columns:
        return None
    codes = pd.factorize(frame[group], sort=True)[0].astype(np.int64)
    unknown = codes < 0
    codes[unknown] = codes.max(initial=-1) + 1 + np.arange(int(unknown.sum()))
    return codes


def read_once(path: Path, declared: Declaration) -> Table:
    """Read a file, or return it as it was read last: a run describes its data, and then prepares them."""
    state, site = path.stat(), site_of(path)
    key = (path, state.st_mtime_ns, state.st_size, repr((declared, site)))
    found = _READ.get(key)
    if found is None:
        if len(_READ) >= _MOST_READ:
            _READ.clear()
        found = _READ[key] = read_table(path, declared, site)
    return found
