"""Agreement of all sites, from their descriptions: columns, targets, classes, one `Preprocessing`."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from florets.task.data.array_scale import ArrayScale, pooled_scale
from florets.task.data.samples import fits_shape
from florets.task.data.tables.agreed_columns import ENCODING, agreed_columns, foreign_words, kind_of
from florets.task.data.tables.agreed_target import (
    Classes,
    alike_names,
    common_classes,
    natural_order,
    pooled_targets,
)
from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.description import MOST_GUESSED, ColumnSummary, Description, TargetSummary
from florets.task.data.tables.marks import in_the_way, is_open, is_plain, marks_of
from florets.task.data.tables.names import (
    listed,
)
from florets.task.data.tables.pooling import (
    categorical_input,
    numeric_input,
)
from florets.task.data.tables.preprocessing import Preprocessing


@dataclass(frozen=True)
class Agreed:
    """What a run goes by.

    Parameters
    ----------
    input_shape, num_outputs
        Of the model.
    is_regression
        Whether the targets are values.
    classes
        Class names in the order of their labels; empty where labels are numbers, or there are none.
    untrained
        Classes of archives and images that no site trains on, where a site has test samples of one.
    num_targets
        Numbers of the target of a sample; 0: one that is not in a row.
    preprocessing
        Of tables; None where no site has one.
    group
        Column whose equal values belong to one subject; empty: none.
    left_out
        Sites that cannot take part, with the reason.
    notes
        What was decided, for the user.
    warnings
        What was decided and may well not be meant.
    target_why
        Why a table's target was taken for classes or values, and the key for the other; empty where that is declared
        or plain.
    heavy
        Kurtosis of the numeric columns that have heavy tails.
    scale
        By which arrays are standardised; None: not at all.
    """

    input_shape: tuple[int, ...]
    num_outputs: int
    is_regression: bool
    classes: tuple[str, ...] = ()
    untrained: tuple[str, ...] = ()
    num_targets: int = 0
    preprocessing: Preprocessing | None = None
    group: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    target_why: str = ""
    heavy: Mapping[str, float] = field(default_factory=dict)
    scale: ArrayScale | None = None


def agree(
    declared: Declaration,
    sites: Mapping[str, Description],
    classes: Sequence[str] | None = None,
    input_shape: Sequence[int] = (),
    num_outputs: int = 0,
) -> Agreed:
    """Return what the sites have in common; the majority's columns hold.

    Parameters
    ----------
    declared
        What the run says of tables.
    sites
        Description of each site, by client key; at least one.
    classes
        Names of the classes as the run has them; None: they follow from the data.
    input_shape, num_outputs
        As the run has them; empty and 0: they follow from the data.

    Raises
    ------
    ValueError
        If there is no majority for a target, a form or a shape, or nothing to learn is left.
    """
    tables = {key: site for key, site in sorted(sites.items()) if site.form == "table"}
    others = {key: site for key, site in sorted(sites.items()) if site.form != "table"}
    if not tables:
        found = _arrays(others, classes, input_shape, num_outputs)
        if declared.standardise == "none":
            return found
        taking_part = {key: site for key, site in others.items() if key not in found.left_out}
        return replace(found, scale=pooled_scale(taking_part, found.input_shape, found.is_regression))
    if len(tables) == len(others):
        raise ValueError("half of the sites have tables, half arrays or images: give all sites the same form.")
    if others:
        kept, rest = (tables, others) if len(tables) > len(others) else (others, tables)
        form = "tables" if kept is tables else "archives or images"
        found = agree(declared, kept, classes, input_shape, num_outputs)
        reason = f"has data of another form than most sites, which have {form}; give it the same form"
        return replace(found, left_out={**found.left_out, **dict.fromkeys(rest, reason)})
    found = _tables(declared, tables, classes)
    if input_shape and math.prod(input_shape) != found.input_shape[0]:
        raise ValueError(
            f"task.partition_options.input_shape={list(input_shape)}: the tables have inputs of "
            f"{found.input_shape[0]} numbers (constant columns and ids are none); leave it out."
        )
    outputs = num_outputs if num_outputs and found.is_regression else found.num_outputs
    return replace(found, input_shape=tuple(input_shape) or found.input_shape, num_outputs=outputs)


def last_column(target: str) -> str:
    """Return the line that says which column is the target where none is named."""
    return f"the target is the last column, {target!r}, since none is named; for another, target=<column>"


def _tables(declared: Declaration, sites: Mapping[str, Description], classes: Sequence[str] | None) -> Agreed:
    notes: list[str] = []
    warnings: list[str] = []
    left_out: dict[str, str] = {}
    nowhere = set.intersection(*(set(site.lacking) for site in sites.values()))
    for key in dict.fromkeys(declared.named.values()):
        if wrong := [name for name in declared.named if name in nowhere and declared.named[name] == key]:
            raise ValueError(f"task.table.{key} names {listed(wrong)}, and no site has such a column; correct it.")
    target = _target_name(sites, left_out)
    if not declared.target:
        notes.append(last_column(target))
    sites = {key: site for key, site in sites.items() if key not in left_out}
    columns, group, ids = agreed_columns(declared, sites, left_out, notes, warnings)
    sites = {key: site for key, site in sites.items() if key not in left_out}
    _refuse_garbled(declared, sites, left_out)
    sites = {key: site for key, site in sites.items() if key not in left_out}
    if sites:
        targets = {key: _target_of(site) for key, site in sites.items()}
        values, mean, std = pooled_targets(declared, targets, classes, left_out, notes)
        sites = {key: site for key, site in sites.items() if key not in left_out}
        targets = {key: one for key, one in targets.items() if key in sites}
    if not sites:
        raise ValueError(f"no site can take part: {_reasons(left_out)}")
    numeric, categorical = [], []
    heavy: dict[str, float] = {}
    for name, summaries in columns.items():
        known = {key: summaries[key] for key in sites if key in summaries}
        if kind_of(list(known.values())) == "numeric":
            # What is not standardised is not clipped either.
            numeric += numeric_input(name, known, declared.standardise == "pooled", heavy, notes)
        else:
            categorical += categorical_input(name, list(known.values()), notes)
            warnings += _garbled_categories(name, known, sites)
    guessed = [one for one in categorical if one.name not in declared.categorical]
    notes += filter(None, (_note_on_categories(one.name, one.categories) for one in guessed))
    if not numeric and not categorical:
        reasons = "; ".join(notes[-3:]) or "the tables have no other columns than the target"
        raise ValueError(
            f"no column is left that could be an input ({reasons}): name them, task.table.columns or "
            "task.table.categorical; of very few records lower min_count at the nodes."
        )
    preprocessing = Preprocessing(
        numeric=tuple(numeric),
        categorical=tuple(categorical),
        target=target,
        classes=values,
        target_mean=mean,
        target_std=std,
        standardise=declared.standardise,
        ids=tuple(name for name in dict.fromkeys((*declared.id, *ids, group)) if name),
    )
    return Agreed(
        input_shape=(preprocessing.width,),
        num_outputs=max(len(values), 1),
        is_regression=not values,
        classes=tuple(values),
        preprocessing=preprocessing,
        group=group,
        left_out=left_out,
        notes=tuple(notes),
        warnings=(*warnings, *_odd_classes(declared, values), *_doubtful_classes(declared, targets, values)),
        target_why=_target_why(declared, targets, values),
        heavy=heavy,
    )


def _target_why(declared: Declaration, sites: Mapping[str, TargetSummary], classes: Classes) -> str:
    """Return why a target of numbers was taken for classes or values, and the key for the other."""
    if declared.regression is not None or declared.classes or not all(one.numeric for one in sites.values()):
        return ""
    if classes:
        why = f"since it has {len(classes)} different integers; for an amount, task.table.regression=true"
        return why if len(classes) > 2 else ""
    whole = all(one.whole for one in sites.values())
    why = f"since it has more than {MOST_GUESSED} different integers" if whole else "since it has fractions"
    return f"{why}; for classes, task.table.regression=false"


def _odd_classes(declared: Declaration, classes: Classes) -> list[str]:
    """Return a warning where a few words stand among classes that are numbers, which may mark missing values."""
    if declared.classes or declared.regression is False:
        return []
    numbers = [name for name in classes if is_plain(name)]
    words = [name for name in classes if not any(map(str.isdigit, name))]
    if not words or len(words) >= len(numbers):
        return []
    return [
        f"the target's classes are {len(numbers)} numbers and {listed(words)}: if that marks missing values, name it "
        "in missing (task.table or the node's file); if it is a class, task.table.regression=false says so"
    ]


def _doubtful_classes(declared: Declaration, sites: Mapping[str, TargetSummary], classes: Classes) -> Iterator[str]:
    """Yield a warning of classes that may be one, and of as many as a column of amounts has."""
    if declared.classes:
        return
    if alike := alike_names(combinations(classes, 2)):
        yield (
            f"two classes of the target may be one{alike}: write them alike at all sites, or give the cells of each "
            "class, task.table.classes"
        )
    if 2 * len(classes) > (records := sum(one.known for one in sites.values())):
        yield (
            f"the target has {len(classes)} classes for {records} training records; if it is an amount, "
            "task.table.regression=true says so"
        )


def _note_on_categories(name: str, words: Sequence[str]) -> str:
    """Return a note on categories some of which are numbers, or would be without a mark; empty where none are."""
    odd = [word for word in words if not is_plain(word)]
    if odd and len(odd) < len(words):
        rest = "" if all(map(is_open, odd)) else "; if a word marks missing values, name it in missing"
        return f"{name!r} has few different values, numbers and words ({listed(odd)}): they are categories{rest}"
    if marks := marks_of(words):
        return f"{name!r} has few different values, and they are categories: its cells {in_the_way(marks)}"
    return ""


def _garbled(words: Mapping[str, Iterable[str]], sites: Mapping[str, Description]) -> dict[str, set[str]]:
    """Return for each site whose encoding is a guess its words with letters that no other site has in any word.

    `words` are those of each site. Where sites whose encoding is certain have such words, they say which are right.
    """
    found = {}
    for key, own in words.items():
        if not sites[key].guessed:
            continue
        others = {other: foreign_words(theirs) for other, theirs in words.items() if other != key}
        certain = set().union(*(theirs for other, theirs in others.items() if not sites[other].guessed))
        strange = foreign_words(own) - (certain or set().union(*others.values()))
        if strange and others:
            found[key] = strange
    return found


def _refuse_garbled(declared: Declaration, sites: Mapping[str, Description], left_out: dict[str, str]) -> None:
    """Leave out sites with a class of their own that may be another one's name in another encoding."""
    if declared.classes:
        return
    classes = {key: _target_of(site).classes for key, site in sites.items()}
    for key, words in _garbled(classes, sites).items():
        left_out[key] = (
            f"has a class of the target with letters that no other site has ({listed(sorted(words))}); {ENCODING}"
        )


def _garbled_categories(
    name: str, columns: Mapping[str, ColumnSummary], sites: Mapping[str, Description]
) -> Iterator[str]:
    for key, words in _garbled({key: one.categories for key, one in columns.items()}, sites).items():
        yield f"{key}: {name!r} has letters that no other site has ({listed(sorted(words))}): {ENCODING}"


def _target_of(site: Description) -> TargetSummary:
    assert site.target is not None
    return site.target


def _reasons(left_out: Mapping[str, str]) -> str:
    return "; ".join(f"{key} {reason}" for key, reason in list(left_out.items())[:3])


def _target_name(sites: Mapping[str, Description], left_out: dict[str, str]) -> str:
    names = Counter(_target_of(site).name for site in sites.values())
    name, count = names.most_common(1)[0]
    if len(names) > 1 and count * 2 <= len(sites):
        raise ValueError(
            f"the sites' last columns differ ({listed(sorted(names))}), and no target is named: give target=<column>."
        )
    others = {key: own for key, site in sites.items() if (own := _target_of(site).name) != name}
    why = f"as its last column, the other sites {name!r}, and no target is named: give target=<column>"
    left_out.update({key: f"has {own!r} {why}" for key, own in others.items()})
    return name


def _arrays(
    sites: Mapping[str, Description], classes: Sequence[str] | None, input_shape: Sequence[int], num_outputs: int
) -> Agreed:
    """Agree on archives and images: shape by majority, labels up to the largest one, class folders by name."""
    left_out: dict[str, str] = {}
    notes: list[str] = []
    shape = tuple(input_shape) or Counter(_channels_first(site) for site in sites.values()).most_common(1)[0][0]
    for key, site in sites.items():
        if not fits_shape(site.shape, shape):
            left_out[key] = f"has inputs of shape {site.shape}, and the federation's are {shape}"
    if len(left_out) == len(sites):
        raise ValueError(f"no site can take part: {_reasons(left_out)}")
    names: tuple[str, ...] = () if classes is None else tuple(map(str, classes))
    if not names:
        kinds = {key: _targets_of(site) for key, site in sites.items() if key not in left_out}
        votes = Counter(kinds.values()).most_common()
        if "names" in kinds.values() and len(votes) > 1 and votes[0][1] * 2 <= len(kinds):
            raise ValueError(
                "some sites have folders of images, others numbers as labels: name the classes in the order of the "
                "labels, task.data_options.classes=[<first>,...]."
            )
        if votes[0][1] * 2 > len(kinds):
            kind = votes[0][0]
            reason = f"has {{}} as targets, and most sites have {_words_of(kind)}; give it the same form"
            left_out |= {key: reason.format(_words_of(its)) for key, its in kinds.items() if its != kind}
        images = {
            key: set(sites[key].classes) for key, its in kinds.items() if its == "names" and key not in left_out
        }
        if images:
            names = tuple(common_classes(images, left_out, notes, "name all of them, task.data_options.classes"))
    here = [site for key, site in sites.items() if key not in left_out]
    regression = all(not site.classes for site in here)
    outputs = num_outputs or len(names) or max((len(site.classes) for site in here), default=0)
    values = regression and not names
    untrained: tuple[str, ...] = ()
    if any(site.unseen for site in here):
        trained = {name for site in here for name in site.trained}
        every = {name for site in here for name in site.classes}
        untrained = tuple(sorted(every - trained, key=natural_order))
    columns = max((site.targets for site in here), default=0)
    outputs = num_outputs or columns or 1 if values else outputs
    return Agreed(shape, outputs, values, names, untrained, columns, left_out=left_out, notes=tuple(notes))


_TARGETS = {"names": "folders of classes", "labels": "numbers of classes", "values": "values"}


def _targets_of(site: Description) -> str:
    """Return what the targets of an archive or of folders of images are."""
    if site.targets:
        return f"rows of {site.targets} values"
    return "names" if site.form == "images" else "labels" if site.classes else "values"


def _words_of(kind: str) -> str:
    return _TARGETS.get(kind, kind)


def _channels_first(site: Description) -> tuple[int, ...]:
    """Return a site's shape; grey images without an axis of channels get one."""
    return (1, *site.shape) if len(site.shape) == 2 else site.shape


def as_options(agreed: Agreed) -> dict[str, Any]:
    """Return the options of the partition `own` that follow."""
    columns = {"num_targets": agreed.num_targets} if agreed.num_targets else {}
    return {"input_shape": list(agreed.input_shape), "num_outputs": agreed.num_outputs, **columns}
