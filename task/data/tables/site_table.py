"""`SiteTable`: the records of one site, and their split into training and test set, subject by subject."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from florets.task.data.dataset import Dataset
from florets.task.data.tables.declaration import Declaration, Site, site_of
from florets.task.data.tables.describe import describe_table, repeating_group, target_name
from florets.task.data.tables.description import MOST_GUESSED, Description
from florets.task.data.tables.names import as_numbers
from florets.task.data.tables.preprocessing import Preprocessing, Scale
from florets.task.data.tables.read import Table, check_target, read_table
from florets.task.spec import DECLARED, PREPARED, ROWS_OF

if TYPE_CHECKING:
    import pandas as pd

_MOST_STRATA = 10
"""Quantiles of a regression's target by which records are stratified."""
_MOST_FOLDS = 20
"""Folds into which subjects are divided, some of which are the test set: with more its share is met more nearly, and
each has fewer of a class."""


def split_rows(
    target: NDArray[Any],
    groups: NDArray[Any] | None,
    test_share: float,
    seed: int,
    is_regression: bool,
    stratify: bool = True,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows (sorted) of the training and of the test set.

    Parameters
    ----------
    target
        (n,): class names, or values.
    groups
        (n,): whose each record is; all of one subject's records come into one set. None: each stands for itself.
    test_share
        Fraction of the test set, rounded up; at least one record is on either side. Of subjects it is met as nearly
        as twentieths and their sizes allow.
    seed
        Of the draw: without groups that of scikit-learn's `train_test_split`, so that published splits can be
        reproduced.
    is_regression
        Stratify by quantiles of the target in place of classes.
    stratify
        Draw the same fraction of each class, or quantile.
    """
    from sklearn.model_selection import StratifiedGroupKFold, train_test_split

    n = len(target)
    if n < 2:
        raise ValueError(f"a table of {n} record cannot be split into training and test records: give at least 2.")
    strata = _strata(target, is_regression, test_share) if stratify else None
    if groups is not None:
        subjects = len(np.unique(groups))
        if subjects < 2:
            raise ValueError(
                "all records belong to one subject (task.table.group), and cannot be split; give several."
            )
        num_test, folds = _folds(test_share, min(_MOST_FOLDS, subjects))
        if strata is None or np.bincount(strata).max() < folds:
            strata = np.zeros(n, dtype=np.int64)
        cut = StratifiedGroupKFold(n_splits=folds, shuffle=True, random_state=seed)
        with warnings.catch_warnings():
            # Of few subjects a class may have fewer records than there are folds.
            warnings.simplefilter("ignore", UserWarning)
            tests = [test for _, test in cut.split(groups, strata, groups)]
        is_test = np.zeros(n, dtype=bool)
        is_test[np.concatenate(tests[:num_test])] = True
        return np.flatnonzero(~is_test), np.flatnonzero(is_test)
    train, test = train_test_split(
        np.arange(n),
        test_size=min(math.ceil(test_share * n), n - 1),
        random_state=seed,
        shuffle=True,
        stratify=strata,
    )
    return np.sort(train).astype(np.int64), np.sort(test).astype(np.int64)


def _folds(test_share: float, most: int) -> tuple[int, int]:
    """Return how many of how many folds, at most so many, are the test set.

    In lowest terms: of a class that is rarer than the folds are many, four of twenty may have none, one of five has.
    """
    nearest = Fraction(test_share).limit_denominator(most)
    nearest = min(max(nearest, Fraction(1, most)), Fraction(most - 1, most))
    return nearest.numerator, nearest.denominator


def _strata(target: NDArray[Any], is_regression: bool, test_share: float) -> NDArray[np.int64] | None:
    """Return the stratum of each record; None where there are too few records for any."""
    n = len(target)
    if is_regression:
        values = target.astype(np.float64)
        num_test = int(np.ceil(test_share * n))
        count = min(_MOST_STRATA, num_test, n - num_test, n // 2)
        if count < 2:
            return None
        edges = np.quantile(values, np.linspace(0, 1, count + 1)[1:-1])
        found = np.searchsorted(edges, values, side="right")
    else:
        found = np.unique(target, return_inverse=True)[1]
    counts = np.bincount(found)
    # A class of one record cannot be on both sides: it goes with the most frequent one.
    found = np.where(counts[found] < 2, counts.argmax(), found)
    kinds = len(np.unique(found))
    num_test = int(np.ceil(test_share * n))
    return found.astype(np.int64) if 1 < kinds <= min(num_test, n - num_test) else None


@dataclass(frozen=True)
class SiteTable:
    """A site's table.

    Parameters
    ----------
    declared
        What the run says of it.
    table
        All records with a target.
    train, test
        Rows of the two sets.
    untargeted
        Records without a target, which were left out.
    group
        Column whose equal values are one subject's; empty: none. Until the sites have agreed, a repeating id that the
        site itself detects.
    regression
        Whether the split took the targets for values; None where the files are split already.
    preprocessing
        As the sites agreed; None before that.
    """

    declared: Declaration
    table: Table
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    untargeted: int = 0
    group: str = ""
    regression: bool | None = None
    preprocessing: Preprocessing | None = None

    @classmethod
    def read(cls, paths: Sequence[Path], values: Mapping[str, Any], seed: int) -> "SiteTable":
        """Read a site's files: an undivided one, which is split, or a training and a test set.

        Parameters
        ----------
        paths
            One file, or two.
        values
            The task's `table`.
        seed
            Of the split, where the run declares no `split_seed`.
        """
        import pandas as pd

        declared = Declaration.of(values.get(DECLARED, {}))
        site = site_of(paths[0])
        # A run may ask for less to be sent, not for more.
        min_count = max(declared.min_count, site.min_count)
        declared = replace(declared, min_count=min_count, categorical=[*declared.categorical, *site.categorical])
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
        for frame in frames:
            if target not in frame.columns:
                raise ValueError(f"the table has no column {target!r}, the target.")
            # Where the sites found the group among their columns, one may have no such column.
            if prepared is None and declared.group and declared.group not in frame.columns:
                raise ValueError(f"the table has no column {declared.group!r} (task.table.group).")
        if prepared is None:
            for path, part, frame in zip(paths, parts, frames, strict=True):
                check_target(path, part, frame[target], declared)
        inputs = prepared.columns if prepared else declared.inputs_of(tuple(frames[0].columns))
        kept = [_complete(frame, declared, target, inputs) for frame in frames]
        untargeted = sum(len(frame) for frame in frames) - sum(len(frame) for frame in kept)
        frame = pd.concat(kept, ignore_index=True) if len(kept) > 1 else kept[0].reset_index(drop=True)
        if rows_of is not None:
            frame = frame.drop(columns=owner)
        # As the sites will agree, so that no test record is described.
        group = declared.group or (repeating_group(frame, declared) if prepared is None else "")
        group = group if group in frame.columns else ""
        regression = None
        if len(kept) > 1:
            cut = len(kept[0])
            train, test = np.arange(cut), np.arange(cut, len(frame))
            if not len(train) or not len(test):
                raise ValueError(f"{paths[0].name} or {paths[1].name} has no record with a target.")
            subjects = subjects_of(frame, group)
            both = set() if subjects is None else set(subjects[train].tolist()) & set(subjects[test].tolist())
            if both:
                # The split is the site's own: it is told, and kept.
                notes = (*notes, f"{len(both)} subjects of the group's column have records in both files")
        else:
            regression = prepared.is_regression if prepared else _is_regression(frame[target], declared)
            train, test = _split(frame, declared, target, group, regression, seed)
        guessed = any(part.guessed for part in parts)
        table = Table(frame, notes, guessed=guessed)
        return cls(declared, table, train, test, untargeted, group, regression, prepared)

    def describe(self) -> Description:
        """Return what the site says of its data before training."""
        found = describe_table(self.table, self.declared, self.train, subjects_of(self.table.frame, self.group))
        return replace(found, untargeted=self.untargeted, group=self.group, regression=self.regression)

    def scale(self, preprocessing: Preprocessing) -> Scale | None:
        """Return the scale that this site's inputs are standardised by; None: the pooled one."""
        if preprocessing.standardise != "site":
            return None
        return preprocessing.scale_of(self.table.frame.iloc[self.train], self.declared.min_count)

    def dataset(self, preprocessing: Preprocessing) -> Dataset:
        """Return the site's data as a model takes them."""
        frame = self.table.frame
        preprocessing.check(frame)
        scale = self.scale(preprocessing)
        x, y = preprocessing.inputs(frame, scale).x, preprocessing.targets(frame)
        classes = np.zeros(len(y), dtype=np.int64) if preprocessing.is_regression else y
        owner, subjects = self.declared.owner, subjects_of(frame, self.group)
        owners = frame[owner].astype(str).to_numpy(dtype=np.str_) if owner in frame.columns else None
        train, test = self.train, self.test
        return Dataset(
            x[train],
            y[train],
            x[test],
            y[test],
            max(len(preprocessing.classes), 1),
            classes[train],
            classes[test],
            owners_train=None if owners is None else owners[train],
            owners_test=None if owners is None else owners[test],
            subjects_train=None if subjects is None else subjects[train],
            target_scale=preprocessing.target_std,
        )


def _complete(frame: "pd.DataFrame", declared: Declaration, target: str, inputs: Sequence[str]) -> "pd.DataFrame":
    """Return the records with a target and, where the run asks for it, without missing values of an input."""
    kept = frame[frame[target].notna()]
    if declared.incomplete == "drop":
        kept = kept.dropna(subset=[name for name in inputs if name != target and name in frame.columns])
    if not len(kept):
        raise ValueError(f"no record has a target {target!r}" + (" and all inputs." if len(frame) else "."))
    return kept


def _is_regression(targets: "pd.Series[Any]", declared: Declaration) -> bool:
    """Return whether a site takes its targets for values, before the sites have agreed."""
    if declared.regression is not None or declared.classes:
        return bool(declared.regression)
    numbers = as_numbers(targets.astype(object))
    return bool(np.isfinite(numbers).all()) and len(np.unique(numbers)) > MOST_GUESSED


def _split(
    frame: "pd.DataFrame", declared: Declaration, target: str, group: str, is_regression: bool, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    groups = subjects_of(frame, group)
    values = frame[target].astype(object)
    numbers = as_numbers(values)
    if not is_regression:
        raws = {raw: name for name, raws in declared.classes.items() for raw in raws}
        known = values.map(lambda text: raws.get(str(text), str(text))).to_numpy(dtype=np.str_)
        numbers = np.unique(known, return_inverse=True)[1].astype(np.float64)
    split_seed = seed if declared.split_seed is None else declared.split_seed
    return split_rows(numbers, groups, declared.test_share, split_seed % 2**32, is_regression, declared.stratify)


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
    state = path.stat()
    return _kept(path, state.st_mtime_ns, state.st_size, _Key(declared, site_of(path)))


class _Key:
    """What was declared of a file, as a key of a cache."""

    def __init__(self, declared: Declaration, site: Site) -> None:
        self.declared, self.site = declared, site
        self._text = repr((declared, site))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@lru_cache(maxsize=32)
def _kept(path: Path, modified: int, size: int, key: _Key) -> Table:
    return read_table(path, key.declared, key.site)
