"""Measures of a finished run, and their cells in a table: counts of successes and means are never mixed."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from florets.conf.problems import did_you_mean
from florets.conf.schema import Config
from florets.papers.skill import skill_of
from florets.reports.pooled import read_test_statistics
from florets.reports.statistics import ARI, PERCENT
from florets.reports.summary import ALL_RIGHT, ARI_RECOVERED, ARI_ROUND, RoundLine, RunSummary, read_lines

Values = dict[str, Any]
"""Results in a finished run's record; see `values_of`. A stored one lacks what was None, or not measured yet."""


def values_of(folder: Path, summary: RunSummary, config: Config) -> Values:
    """Return what all measures are made of, from a finished run's folder."""
    lines = read_lines(folder)
    skill = skill_of(read_test_statistics(folder), by_accuracy(config), config.fine_tune_epochs > 0)
    return {
        "accuracy": summary.final_accuracy,
        "loss": summary.final_loss,
        "validation": summary.final_validation,
        "ari": summary.final_ari,
        "ari_at_10": summary.ari_at_10,
        "first_round_ari_90": summary.first_round_ari_90,
        "groups": lines[-1]["num_clusters"] if lines else None,
        "frozen_from": summary.round_of_stability,
        "model_error": summary.final_model_error,
        "cluster_error": summary.final_cluster_error,
        **_of_participants(lines),
        **_of_best_ari(lines),
        "worst_tenth": summary.final_worst_tenth,
        "tuned_accuracy": summary.final_tuned_accuracy,
        "rounds_of_ari_1": [line["round"] for line in lines if (line["ari"] or 0.0) >= ALL_RIGHT],
        "bytes": summary.bytes_down + summary.bytes_up,
        "gradient_passes": summary.gradient_passes,
        **({"records": skill} if skill else {}),
    }


def _of_participants(lines: list[RoundLine]) -> Values:
    """Return the ARI over each round's participants alone: at the end, in round 10, and the first round of 0.9."""
    known = {line["round"]: ari for line in lines if (ari := line["ari_participants"]) is not None}
    return {
        "ari_participants": known[max(known)] if known else None,
        "ari_participants_at_10": known.get(ARI_ROUND),
        "first_round_ari_participants_90": next((r for r, ari in known.items() if ari >= ARI_RECOVERED), None),
    }


def _of_best_ari(lines: list[RoundLine]) -> Values:
    """Return the first rounds of an ARI of 1.0, and of the best one above 0: groups were found."""
    known = {line["round"]: ari for line in lines if (ari := line["ari"]) is not None}
    best = max(known.values(), default=0.0)
    return {
        "first_round_ari_1": next((r for r, ari in known.items() if ari >= ALL_RIGHT), None),
        "first_round_best_ari": next((r for r, ari in known.items() if ari == best > 0), None),
    }


Read = Callable[[Values, Config], float | None]
Fits = Callable[[Config], bool]


@dataclass(frozen=True)
class Measure:
    """One figure of a run: a "count" of successes, or a "mean" with its sample standard deviation.

    `near`: difference from a published value that is named "within ...", in the unit shown. `may_be_never`: whether a
    finished run without a value has not come so far (ARI 0.9); of others something else went wrong. `higher`: whether
    a higher value is better, None: neither is. `bounds`: the ends of its range, if it has two.
    """

    label: str
    kind: Literal["count", "mean"]
    form: str
    read: Read
    fits: Fits
    near: float = 0.0
    unit: str = ""
    may_be_never: bool = False
    higher: bool | None = False
    bounds: tuple[float, float] | None = None

    def value(self, values: Values, config: Config | None) -> float | None:
        """Return its value of a finished run, None where it has none or the measure says nothing of it."""
        return self.read(values, config) if config is not None and self.fits(config) else None

    def number(self, value: float, sign: str = "") -> str:
        """Return a value as the table shows it, with `sign` "+" also where it is positive."""
        return self.form.replace("{:", f"{{:{sign}").format(value) if self.form else f"{value:g}"

    def deviation(self, mean: float, deviation: float) -> str:
        """Return the spread of a mean as the table shows it: to the mean's decimals, however small it is."""
        shown = self.number(mean)
        decimals = len(shown.partition(".")[2])
        if not self.form.endswith("g}") or "e" in shown or not decimals:
            return self.number(deviation)
        return f"{deviation:.{decimals}f}"


def _number(name: str, factor: float = 1.0) -> Read:
    def read(values: Values, _: Config) -> float | None:
        value = values.get(name)
        return None if value is None or not math.isfinite(value) else factor * value

    return read


def _right_k(values: Values, config: Config) -> float | None:
    return None if values.get("groups") is None else float(values["groups"] == config.task.num_clusters)


def _recovered(values: Values, _: Config) -> float | None:
    return None if values.get("ari") is None else float(values["ari"] >= ALL_RIGHT)


def _reached(values: Values, _: Config) -> float | None:
    # A run without an ARI says nothing; one that stays below 0.9 is no success.
    return None if values.get("ari") is None else float(values.get("first_round_ari_90") is not None)


def _models_found(values: Values, config: Config) -> float | None:
    error = values.get("model_error")
    noise = config.task.data_options.get("noise")
    return None if error is None or noise is None else float(error < 0.6 * float(noise) + 0.001)


def _rounds_to_regroup(values: Values, config: Config) -> float | None:
    changed = max(config.task.drift.rounds)
    right = [number for number in values.get("rounds_of_ari_1", []) if number >= changed]
    return float(min(right) - changed) if right else None


def _skill(values: Values, _: Config) -> float | None:
    return values["records"][0] if values.get("records") else None


def by_accuracy(config: Config) -> bool:
    """Return whether a run is judged by its accuracy, and not by its loss."""
    return config.measure == "accuracy"


def _rounds_before(name: str) -> Read:
    def read(values: Values, _: Config) -> float | None:
        return None if values.get(name) is None else float(values[name] - 1)

    return read


def _decibel(values: Values, _: Config) -> float | None:
    return 10 * math.log10(values["loss"]) if values.get("loss") else None


def _reconstructs(config: Config) -> bool:
    return config.task.loss == "reconstruction"


def _freezes(config: Config) -> bool:
    return _has_groups(config) and getattr(config.strategy.settings, "stop_when_stable", False)


def _linear(config: Config) -> bool:
    return config.task.data == "linear"


def _true_models(config: Config) -> bool:
    # One model for all cannot find several.
    return _linear(config) and config.strategy.settings.has_groups


def _classes(config: Config) -> bool:
    return config.task.loss == "cross_entropy"


def _finds_groups(config: Config) -> bool:
    # One model for all, or one for each client: there is nothing that could be right or wrong.
    return config.task.num_clusters >= 1 and config.strategy.settings.has_groups


def _drifts(config: Config) -> bool:
    return bool(config.task.drift.rounds) and _has_groups(config)


def _fine_tunes(config: Config) -> bool:
    return config.fine_tune_epochs > 0 and _classes(config)


def _has_groups(config: Config) -> bool:
    # The ARI compares with several groups.
    return config.task.num_clusters >= 2 and _finds_groups(config)


def _ari(label: str, name: str) -> Measure:
    return Measure(label, "mean", "{:.2f}", _number(name), _has_groups, 0.01, higher=True, bounds=ARI)


def _rounds(label: str, read: Read, fits: Fits, near: float = 1.0) -> Measure:
    return Measure(label, "mean", "{:.1f}", read, fits, near, "round" if near else "", may_be_never=True)


def _percent(label: str, name: str, fits: Fits, higher: bool = True) -> Measure:
    return Measure(label, "mean", "{:.1f}", _number(name, 100.0), fits, 1.0, "point", higher=higher, bounds=PERCENT)


def _count(label: str, read: Read, fits: Fits) -> Measure:
    return Measure(label, "count", "", read, fits, higher=True)


def _plain(label: str, form: str, read: Read, fits: Fits, higher: bool | None = False) -> Measure:
    return Measure(label, "mean", form, read, fits, higher=higher)


MEASURES = {
    "right_k": _count("right number of groups at the end", _right_k, _finds_groups),
    "recovered": _count("ARI 1.0 at the end", _recovered, _has_groups),
    "groups": _plain("groups at the end", "{:.1f}", _number("groups"), _finds_groups, higher=None),
    "ari": _ari("ARI at the end", "ari"),
    "ari_at_10": _ari("ARI in round 10", "ari_at_10"),
    "rounds_to_ari_90": _rounds("first round with an ARI of 0.9", _number("first_round_ari_90"), _has_groups),
    "rounds_to_ari_1": _rounds("rounds before an ARI of 1.0", _rounds_before("first_round_ari_1"), _has_groups),
    "rounds_to_best_ari": _rounds("rounds before the best ARI", _rounds_before("first_round_best_ari"), _has_groups),
    "rounds_to_freeze": _rounds("rounds before the clusters are frozen", _rounds_before("frozen_from"), _freezes),
    "ari_participants": _ari("ARI of the last round's participants", "ari_participants"),
    "ari_participants_at_10": _ari("ARI of the participants in round 10", "ari_participants_at_10"),
    "rounds_to_ari_participants_90": _rounds(
        "first round with an ARI of its participants of 0.9", _number("first_round_ari_participants_90"), _has_groups
    ),
    "reached_ari_90": _count("ARI of 0.9 reached", _reached, _has_groups),
    "accuracy": _percent("accuracy in %", "accuracy", _classes),
    "worst_tenth": _percent("accuracy of the worst tenth of the clients in %", "worst_tenth", _classes),
    "tuned_accuracy": _percent("accuracy in % after fine-tuning", "tuned_accuracy", _fine_tunes),
    "rounds_to_regroup": _rounds(
        "rounds from the last change of the data to an ARI of 1.0", _rounds_to_regroup, _drifts
    ),
    "skill": _plain(
        "accuracy in %, or explained log loss or variance in %, of all test records",
        "{:.2f}",
        _skill,
        attrgetter("statistics"),
        True,
    ),
    "loss": _plain("test loss", "{:.4g}", _number("loss"), lambda config: not _classes(config)),
    "nmse": _plain("normalised squared error in dB", "{:.2f}", _decibel, _reconstructs),
    "model_error": _plain("distance from the true models, the largest", "{:.4g}", _number("model_error"), _linear),
    "models_found": _count("all true models found (distance below 0.6 sigma + 0.001)", _models_found, _true_models),
    "cluster_error": _percent(
        "test error of the best model for each cluster, in %",
        "cluster_error",
        attrgetter("cluster_test"),
        higher=False,
    ),
    "megabytes": _plain("MB sent and received", "{:.2f}", _number("bytes", 1e-6), lambda _: True),
    "gradient_passes": _plain(
        "1,000 samples passed through models with a gradient",
        "{:,.0f}",
        _number("gradient_passes", 1e-3),
        lambda _: True,
    ),
}


def read_measure(text: str) -> tuple[Measure, str | None]:
    """Return the measure that a text names, and for `<name> - <column>` the column it is compared with."""
    name, minus, column = (part.strip() for part in text.partition(" - "))
    if name not in MEASURES:
        raise ValueError(
            f"{name}: there is no such measure.{did_you_mean(name, MEASURES)} There are: {', '.join(MEASURES)}."
        )
    measure = MEASURES[name]
    if minus and (measure.kind == "count" or not column):
        raise ValueError(f"{text}: a difference is <measure> - <column>, and not of counts of successes.")
    return measure, column or None
