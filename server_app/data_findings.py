"""Findings about sites' data, from their descriptions: each names the site, what is odd, and the remedy."""

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from florets.reports.console import counted
from florets.server_app.units import Conversion, Span, conversion, outside
from florets.strategies.base.report import named
from florets.task.data.tables.agreed_columns import ENCODING
from florets.task.data.tables.agreement import Agreed
from florets.task.data.tables.description import MOST_GUESSED, ColumnSummary, Description, TargetSummary
from florets.task.data.tables.names import NODE_FILE_WORDS, listed, toml_key
from florets.task.data.tables.pooling import outlying

Level = Literal["error", "warning", "note"]

FEW_RECORDS = 30
_MANY_DUPLICATES = 0.02
_FINE = 0.2
"""Different values of a column for each record from which on equal records are copies; of two columns at least."""
_FAR_SPREAD = 10.0
"""Spread of a site's target, as a multiple of the median of the others', that few records must have caused."""
_MOST_ALIKE = 5
"""Findings of one kind that are listed one by one."""
_MANY_UNTARGETED = 0.1


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong or odd; `site` is empty where it concerns all."""

    level: Level
    site: str
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        where = f"{_called(self.site)}: " if self.site else ""
        return f"{where}{self.text}" + (f". {self.remedy}" if self.remedy else "")


def _warning(site: str, text: str, remedy: str) -> Finding:
    return Finding("warning", site, text, remedy)


def _note(site: str, text: str) -> Finding:
    return Finding("note", site, text)


def find(sites: Mapping[str, Description], agreed: Agreed | None, failed: Mapping[str, str]) -> list[Finding]:
    """Return all findings, errors first.

    `agreed` is what the sites have in common, None where they do not fit together; `failed` says why a site's data
    cannot be read, by its key.
    """
    findings = [Finding("error", key, reason.rstrip(".")) for key, reason in failed.items()]
    out = {} if agreed is None else agreed.left_out
    for key, reason in out.items():
        text, _, remedy = reason.partition("; ")
        findings.append(Finding("error", key, f"cannot take part: it {text}", remedy[:1].upper() + remedy[1:]))
    if agreed is not None:
        findings += [_warning("", text, "") for text in agreed.warnings]
        findings += [_note("", text) for text in agreed.notes]
    site_level = _site_level(sites)
    varied = {
        one.name for site in sites.values() for one in site.columns if one.kind == "numeric" and one.distinct > 2
    }
    for key, site in sites.items():
        findings += _records(key, site)
        findings += _columns(key, site, site_level, varied)
    if len(sites) > 1:
        findings += _compared(sites, agreed, site_level)
    findings += _pixels(sites)
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(_grouped(findings), key=lambda finding: order[finding.level])


def _grouped(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Yield the findings; one of several sites with all of them, and of very many of one kind the first."""
    sites: dict[Finding, list[str]] = {}
    for one in findings:
        sites.setdefault(replace(one, site=""), []).append(one.site)
    kinds: dict[tuple[str, str], list[Finding]] = {}
    for one in sites:
        kinds.setdefault((one.level, one.remedy or one.text), []).append(one)
    for alike in kinds.values():
        if len(alike) <= _MOST_ALIKE:
            yield from (replace(one, site=named(sites[one], _MOST_ALIKE)) for one in alike)
        else:
            first = alike[0]
            every = list(dict.fromkeys(name for one in alike for name in sites[one] if name))
            at = f", in all at {_called(named(every, _MOST_ALIKE))}" if every else ""
            more = f"; and {len(alike) - 1} more findings of this kind{at}"
            yield replace(first, site=named(sites[first], _MOST_ALIKE), text=first.text + more)


def _called(sites: str) -> str:
    """Return sites as a text names them: clients without names, which are called by their places, as clients."""
    if not re.fullmatch(r"\d+(, \d+)*( and \d+ more)?", sites):
        return sites
    return f"client {sites}" if sites.isdecimal() else f"clients {sites}"


def _site_level(sites: Mapping[str, Description]) -> list[str]:
    """Return the columns that are properties of the site: with one value at each of most sites."""
    constant: Counter[str] = Counter()
    for column in (column for site in sites.values() for column in site.columns):
        constant[column.name] += column.role == "input" and column.distinct == 1
    return [name for name, count in constant.items() if len(sites) > 2 and count * 2 > len(sites)]


def _records(key: str, site: Description) -> Iterator[Finding]:
    if site.records < FEW_RECORDS:
        text = f"{counted(site.records, 'record')}, too few to judge a model by"
        yield _warning(key, text, "It takes part in training; its own figures say little.")
    # Of few columns with few values records are equal by chance.
    can_tell = sum(one.role == "input" and one.distinct > _FINE * one.known for one in site.columns) > 1
    if can_tell and site.duplicates > max(1, _MANY_DUPLICATES * site.records):
        yield _warning(
            key,
            f"{counted(site.duplicates, 'record')} equal an earlier one in all inputs and the target",
            "Remove copies: they can stand in both the training and the test records. If one person's records "
            "repeat, name the person's column, task.table.group=<column>.",
        )
    total = site.untargeted + site.records
    if site.untargeted > _MANY_UNTARGETED * total:
        remedy = "If a mark of missing values (None, NA) is one of the classes, name it in task.table.classes."
        yield _warning(key, f"{site.untargeted} of {total} records have no target and are left out", remedy)
    elif site.untargeted:
        yield _note(key, f"{counted(site.untargeted, 'record')} without a target, left out")
    if site.unseen:
        yield _warning(
            key,
            f"{counted(site.unseen, 'test record')} of a class that no site trains on, left out",
            "Correct the class, or give training records of it.",
        )
    for name in site.leaking:
        remedy = f"If it follows from the target, leave it out: task.table.drop=[{name}]."
        yield _warning(key, f"{name!r} has one value for each value of the target", remedy)
    if (target := site.target) and len(target.classes) == 1 and not target.rare and site.train_records > 1:
        text = f"the target {target.name!r} has only one class ({next(iter(target.classes))})"
        remedy = "It takes part in training; what sets it apart is its labels, and no model can be judged there."
        yield _warning(key, text, remedy)
    if site.guessed:
        text, _, remedy = ENCODING.partition("; ")
        yield _warning(key, text, f"{remedy[:1].upper()}{remedy[1:]}.")
    for text in site.notes:
        yield _note(key, text)


def _columns(key: str, site: Description, site_level: Container[str], varied: Container[str]) -> Iterator[Finding]:
    for column in site.columns:
        if column.role != "input" or column.name in site_level:
            continue
        if column.name in varied and column.known >= FEW_RECORDS and column.distinct == 1:
            how = "declare it"
            if column.quantiles:
                value = f'{toml_key(column.name)} = ["{column.quantiles[1]:g}"]'
                how = f"declare it in {NODE_FILE_WORDS}: missing_in = {{{value}}}"
            text = f"{column.name!r} has one value in all records"
            yield _warning(key, text, f"If it stands for a missing value, {how}.")


def _compared(
    sites: Mapping[str, Description], agreed: Agreed | None, site_level: Container[str]
) -> Iterator[Finding]:
    """Compare each site's columns, and its target where that is a value, with those of the other sites."""
    by_name: dict[str, dict[str, ColumnSummary | TargetSummary]] = {}
    for key, site in sites.items():
        for column in site.columns:
            if column.role == "input":
                by_name.setdefault(column.name, {})[key] = column
        if site.target is not None and agreed is not None and agreed.is_regression:
            by_name.setdefault(site.target.name, {})[key] = site.target
    for name, columns in by_name.items():
        if name in site_level:
            continue
        out = outlying(columns)
        spans = {key: span for key, one in columns.items() if key not in out and (span := _span(one))}
        apart = outside(spans) if _may_have_a_unit(columns.values()) else {}
        known = {key: one for key, usual in apart.items() if (one := conversion(spans[key], usual))}
        for key, own in columns.items():
            others = [column for other, column in columns.items() if other != key]
            if key in out:
                yield _warning(
                    key,
                    f"the mean or the spread of {name!r} is more than 1000 times that of the other sites",
                    "Its figures of this column are not used for the common scale. Look for a mistyped value or "
                    "another unit.",
                )
            elif key in known and 2 * len(known) < len(spans):
                yield _unit(name, key, known[key], spans[key], apart[key])
            elif key in apart and key not in known:
                yield _warning(
                    key,
                    f"{name!r} lies outside the other sites' values (means {spans[key][1]:.3g} and "
                    f"{apart[key][1]:.3g})",
                    "Compare instruments, codes and units.",
                )
            elif isinstance(own, TargetSummary) and (times := _times_as_wide(own, others)) > _FAR_SPREAD:
                yield _warning(
                    key,
                    f"the spread of the target {name!r} is {times:.0f} times that of the other sites",
                    "Look for a row of totals, a mistyped value or a code of missing values, or declare its unit.",
                )
            elif isinstance(own, ColumnSummary) and (finding := _words(name, key, own, others)):
                yield finding
        if known and 2 * len(known) >= len(spans):
            # Each half seems to be wrong from the other's side.
            sides = f"{listed(sorted(known))} against {listed(sorted(spans.keys() - known.keys()))}"
            yield _warning(
                "",
                f"{name!r} differs between sites as with another unit or code: {sides}",
                f"Agree on one unit or code; who has another unit says so in {NODE_FILE_WORDS}: scale = {{...}}.",
            )


def _times_as_wide(own: TargetSummary, others: Sequence[ColumnSummary | TargetSummary]) -> float:
    """Return a target's spread as a multiple of the median of the others'; 0 where fewer than two others say it."""
    known = [math.sqrt(one.m2 / one.known) for one in others if one.m2 > 0]
    return math.sqrt(own.m2 / own.known) / median(known) if len(known) > 1 and own.m2 > 0 else 0.0


def _may_have_a_unit(columns: Iterable[ColumnSummary | TargetSummary]) -> bool:
    """Return whether a column may hold amounts: a few different integers are counts or codes."""
    return not all(one.whole and one.distinct <= MOST_GUESSED for one in columns)


def _unit(name: str, key: str, known: Conversion, own: Span, usual: Span) -> Finding:
    """Return the finding that a site's column is in another unit: `known` makes it of the others' usual values."""
    ratio, back = own[1] / usual[1], known.reverse
    times = f"{ratio:.3g} times" if ratio >= 1 else f"1/{1 / ratio:.3g} of"
    unit = f" ({back.text})" if back.text else ""
    remedy = f"If that is why{unit}, in {NODE_FILE_WORDS}: scale = {{{toml_key(name)} = {back.factor:.6g}}}."
    if known.offset:
        remedy = f"If that is why{unit}, convert them in the file."
    return _warning(
        key,
        f"{name!r} is about {times} the other sites' (means {own[1]:.3g} and {usual[1]:.3g}), as in another unit",
        remedy,
    )


def _span(one: ColumnSummary | TargetSummary) -> Span | None:
    """Return the 10th percentile, mean and 90th percentile; of few values, which send no percentiles, a normal's."""
    if not one.known or not math.isfinite(one.mean):
        return None
    reach = 1.28 * math.sqrt(one.m2 / one.known)
    low, _, high = one.quantiles or (one.mean - reach, one.mean, one.mean + reach)
    return low, one.mean, high


def _words(
    name: str, key: str, own: ColumnSummary, others: Sequence[ColumnSummary | TargetSummary]
) -> Finding | None:
    """Return a finding where a column's categories are none of those of the other sites."""
    known = {word for one in others if isinstance(one, ColumnSummary) for word in one.categories}
    if not own.categories or not known or known & own.categories.keys():
        return None
    here, there = ", ".join(list(own.categories)[:4]), ", ".join(sorted(known)[:4])
    text = f"{name!r} shares no category with the other sites: ({here}) here, ({there}) there"
    return _warning(key, text, "Use the same words at all sites.")


def _pixels(sites: Mapping[str, Description]) -> Iterator[Finding]:
    """Yield a warning where arrays look like pixels that nothing scales."""
    if keys := [key for key, site in sites.items() if site.are_pixels]:
        where = "" if len(keys) == len(sites) else f" ({listed(keys)})"
        text = f"the arrays' inputs look like pixels of 0 to 255, from which many models learn badly{where}"
        yield _warning("", text, "Give them as uint8, which becomes 0 to 1, or divide them by 255.")
