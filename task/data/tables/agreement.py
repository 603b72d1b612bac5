"""Agreement of all sites, from their descriptions: columns, targets, classes, one `Preprocessing`."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from florets.task.data.array_scale import ArrayScale, pooled_scale
from florets.task.data.samples import fits_shape
from florets.task.data.tables.agreed_columns import ENCODING, Decisions, agreed_columns, agreed_inputs
from florets.task.data.tables.agreed_target import common_classes, natural_order, pooled_targets, why_target
from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.description import Description, TargetSummary
from florets.task.data.tables.names import listed
from florets.task.data.tables.preprocessing import Preprocessing

One = TypeVar("One")


@dataclass(frozen=True)
class Agreed:
    """What a run goes by."""

    input_shape: tuple[int, ...]
    num_outputs: int
    is_regression: bool
    classes: tuple[str, ...] = ()
    """In the order of their labels; empty where labels are numbers, or there are none."""
    untrained: tuple[str, ...] = ()
    """Classes of archives and images that no site trains on, where a site has test samples of one."""
    num_targets: int = 0
    """Numbers of the target of a sample; 0: one that is not in a row."""
    preprocessing: Preprocessing | None = None
    """Of tables."""
    group: str = ""
    """Column whose equal values belong to one subject."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Sites that cannot take part, with the reason."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    target_why: str = ""
    """Why a table's target was taken for classes or values, and the key for the other, where that is not plain."""
    scale: ArrayScale | None = None
    """By which arrays are standardised."""

    def taking_part(self, sites: Mapping[str, One]) -> dict[str, One]:
        """Return what is not of a site that is left out."""
        return {key: one for key, one in sites.items() if key not in self.left_out}


def agree(
    declared: Declaration,
    sites: Mapping[str, Description],
    classes: Sequence[str] | None = None,
    input_shape: Sequence[int] = (),
    num_outputs: int = 0,
) -> Agreed:
    """Return what the sites, by client key, have in common; the majority's form, columns and types hold.

    What `classes`, `input_shape` and `num_outputs` do not say follows from the data. ValueError if there is no
    majority for a target, a form or a shape, or nothing to learn is left.
    """
    tables = {key: site for key, site in sorted(sites.items()) if site.form == "table"}
    others = {key: site for key, site in sorted(sites.items()) if site.form != "table"}
    if not tables:
        found = _arrays(others, classes, input_shape, num_outputs)
        return replace(found, scale=pooled_scale(found.taking_part(others), found.input_shape, found.is_regression))
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
        wanted = f"task.partition_options.input_shape={list(input_shape)}"
        raise ValueError(f"{wanted}: the tables have {found.input_shape[0]} inputs; leave it out.")
    outputs = num_outputs if num_outputs and found.is_regression else found.num_outputs
    return replace(found, input_shape=tuple(input_shape) or found.input_shape, num_outputs=outputs)


def last_column(target: str) -> str:
    """Return the line that says which column is the target where none is named."""
    return f"the target is the last column, {target!r}, since none is named; for another, target=<column>"


def _tables(declared: Declaration, sites: Mapping[str, Description], classes: Sequence[str] | None) -> Agreed:
    decided = Decisions()
    nowhere = set.intersection(*(set(site.lacking) for site in sites.values()))
    for key in dict.fromkeys(declared.named.values()):
        if wrong := [name for name in declared.named if name in nowhere and declared.named[name] == key]:
            raise ValueError(f"task.table.{key} names {listed(wrong)}, and no site has such a column; correct it.")
    target = _target_name(sites, decided)
    if not declared.target:
        decided.notes.append(last_column(target))
    sites = decided.staying(sites)
    columns, group, ids = agreed_columns(declared, sites, decided)
    targets = {key: _target_of(site) for key, site in decided.staying(sites).items()}
    if not declared.classes:
        _refuse_garbled(targets, sites, decided)
        targets = decided.staying(targets)
    if targets:
        values, mean, std = pooled_targets(declared, targets, classes, decided)
        targets = decided.staying(targets)
    if not targets:
        raise ValueError(f"no site can take part: {_reasons(decided.left_out)}")
    of_all = {name: {key: of[key] for key in targets if key in of} for name, of in columns.items()}
    numeric, categorical = agreed_inputs(declared, of_all, decided)
    preprocessing = Preprocessing(
        numeric=tuple(numeric),
        categorical=tuple(categorical),
        target=target,
        classes=values,
        target_mean=mean,
        target_std=std,
        ids=tuple(name for name in dict.fromkeys((*declared.id, *ids, group)) if name),
    )
    return Agreed(
        input_shape=(preprocessing.width,),
        num_outputs=max(len(values), 1),
        is_regression=not values,
        classes=tuple(values),
        preprocessing=preprocessing,
        group=group,
        left_out=decided.left_out,
        notes=tuple(decided.notes),
        warnings=tuple(decided.warnings),
        target_why=why_target(declared, targets, values),
    )


def _refuse_garbled(
    targets: Mapping[str, TargetSummary], sites: Mapping[str, Description], decided: Decisions
) -> None:
    """Leave out sites of a guessed encoding whose class may be another site's, garbled."""
    foreign = {key: {name for name in one.classes if not name.isascii()} for key, one in targets.items()}
    certain = set().union(*(words for key, words in foreign.items() if not sites[key].guessed))
    for key, own in foreign.items():
        strange = sorted(own - (certain or set().union(*(words for other, words in foreign.items() if other != key))))
        if sites[key].guessed and strange and len(targets) > 1:
            decided.left_out[key] = (
                f"has a class of the target with letters that no other site has ({listed(strange)}); {ENCODING}"
            )


def _target_of(site: Description) -> TargetSummary:
    assert site.target is not None
    return site.target


def _reasons(left_out: Mapping[str, str]) -> str:
    return "; ".join(f"{key} {reason}" for key, reason in list(left_out.items())[:3])


def _target_name(sites: Mapping[str, Description], decided: Decisions) -> str:
    names = Counter(_target_of(site).name for site in sites.values())
    name, count = names.most_common(1)[0]
    if len(names) > 1 and count * 2 <= len(sites):
        raise ValueError(f"the sites' last columns differ ({listed(sorted(names))}): give target=<column>.")
    others = {key: own for key, site in sites.items() if (own := _target_of(site).name) != name}
    why = f"as its last column, the other sites {name!r}, and no target is named: give target=<column>"
    decided.left_out.update({key: f"has {own!r} {why}" for key, own in others.items()})
    return name


def _arrays(
    sites: Mapping[str, Description], classes: Sequence[str] | None, input_shape: Sequence[int], num_outputs: int
) -> Agreed:
    """Agree on archives and images: shape by majority, labels up to the largest one, class folders by name."""
    decided = Decisions()
    shape = tuple(input_shape) or Counter(_channels_first(site) for site in sites.values()).most_common(1)[0][0]
    for key, site in sites.items():
        if not fits_shape(site.shape, shape):
            decided.left_out[key] = f"has inputs of shape {site.shape}, and the federation's are {shape}"
    if len(decided.left_out) == len(sites):
        raise ValueError(f"no site can take part: {_reasons(decided.left_out)}")
    names: tuple[str, ...] = () if classes is None else tuple(map(str, classes))
    if not names:
        kinds = {key: _targets_of(site) for key, site in decided.staying(sites).items()}
        votes = Counter(kinds.values()).most_common()
        if _FOLDERS in kinds.values() and len(votes) > 1 and votes[0][1] * 2 <= len(kinds):
            raise ValueError(
                "some sites have folders of images, others numbers as labels: name the classes in the order of the "
                "labels, task.data_options.classes=[<first>,...]."
            )
        if votes[0][1] * 2 > len(kinds):
            reason = f"has {{}} as targets, and most sites have {votes[0][0]}; give it the same form"
            decided.left_out |= {key: reason.format(its) for key, its in kinds.items() if its != votes[0][0]}
        images = {key: set(sites[key].classes) for key, its in decided.staying(kinds).items() if its == _FOLDERS}
        if images:
            names = tuple(common_classes(images, decided, "name all of them, task.data_options.classes"))
    here = [site for key, site in sites.items() if key not in decided.left_out]
    is_regression = all(not site.classes for site in here) and not names
    outputs = len(names) or max((len(site.classes) for site in here), default=0)
    untrained: tuple[str, ...] = ()
    if any(site.unseen for site in here):
        trained = {name for site in here for name in site.trained}
        every = {name for site in here for name in site.classes}
        untrained = tuple(sorted(every - trained, key=natural_order))
    columns = max((site.targets for site in here), default=0)
    outputs = num_outputs or (columns or 1 if is_regression else outputs)
    left_out, notes = decided.left_out, tuple(decided.notes)
    return Agreed(shape, outputs, is_regression, names, untrained, columns, left_out=left_out, notes=notes)


_FOLDERS = "folders of classes"


def _targets_of(site: Description) -> str:
    """Return what the targets of an archive or of folders of images are."""
    if site.targets:
        return f"rows of {site.targets} values"
    return _FOLDERS if site.form == "images" else "numbers of classes" if site.classes else "values"


def _channels_first(site: Description) -> tuple[int, ...]:
    """Return a site's shape; grey images without an axis of channels get one."""
    return (1, *site.shape) if len(site.shape) == 2 else site.shape


def as_options(agreed: Agreed) -> dict[str, Any]:
    """Return the options of the partition `own` that follow."""
    columns = {"num_targets": agreed.num_targets} if agreed.num_targets else {}
    return {"input_shape": list(agreed.input_shape), "num_outputs": agreed.num_outputs, **columns}
