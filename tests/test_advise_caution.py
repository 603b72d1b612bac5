"""`florets advise` where little is known: few records, methods without a result, rounds of some clients."""

import math

import pytest

from florets.server_app.advise.advice import Advice, advise
from florets.server_app.advise.compare import choose, is_below, low_sites
from florets.server_app.advise.findings import Finding, finding_of
from florets.server_app.advise.methods import Question
from florets.server_app.advise.outcomes import Figure, Metric, Outcome
from florets.server_app.advise.words import Words

SITES = ("a", "b", "c", "d", "e")
OWN = Question.of(
    [
        *("experiment=own_data", "data_dir=somewhere", "task.partition_options.input_shape=[3]", "min_clients=5"),
        "task.partition_options.num_outputs=2",
    ]
)
LONE = Finding("lone", (SITES[:4], ("e",)), ("e",), 0.0025)
TWO = Finding("groups", (("a", "b", "c"), ("d", "e")), (), 0.0025)


def outcome(name: str, values: list[float], metric: Metric = "accuracy", records: int = 40) -> Outcome:
    found = {site: Figure(value, records) for site, value in zip(SITES, values, strict=False)}
    return Outcome(name, metric, found, found, dict.fromkeys(found, 0), 3_000_000, 12.0, "somewhere")


def given(
    finding: Finding, after: Finding | None = None, metric: Metric = "accuracy", **values: list[float]
) -> Advice:
    return advise(finding, {name: outcome(name, figures, metric) for name, figures in values.items()}, after)


def reasons(advice: Advice) -> str:
    return " ".join(Words(advice, OWN).reasons)


@pytest.mark.parametrize(("value", "records", "expected"), [(0.0, 5, False), (0.0, 6, True), (0.25, 4, False)])
def test_a_few_wrong_answers_are_no_sign_of_swapped_labels(value: float, records: int, expected: bool) -> None:
    # Of five coins all show one side in 3.1 % of cases, of six in 1.6 %.
    assert is_below(Figure(value, records), 0.5) is expected


def test_a_site_of_two_records_is_not_called_low() -> None:
    assert low_sites(outcome("local", [1.0] * 4 + [0.0], records=1)) == []
    assert low_sites(outcome("local", [1.0] * 4 + [0.0], records=20)) == ["e"]


def test_a_site_whose_own_model_alone_is_bad_is_not_said_to_have_mistakes() -> None:
    # As with few records to train on: the others' model predicts the site's records.
    low = [0.95] * 4 + [0.5]
    advice = given(LONE, fedavg=[0.95] * 5, discovery=low, tuned=[0.95] * 5, local=low)
    assert advice.own_is_low == ()
    assert "e: a model of its own does badly here, and another does not." in reasons(advice)
    assert "No model predicts" not in reasons(advice)
    assert given(LONE, fedavg=low, discovery=low, tuned=low, local=low).own_is_low == ("e",)


def test_of_losses_nobody_says_that_a_site_can_be_predicted() -> None:
    advice = given(LONE, metric="loss", fedavg=[1.0] * 5, discovery=[1.0] * 5, local=[1.0] * 5)
    assert "can be predicted" not in reasons(advice)
    assert "e follows another rule than the others" in reasons(advice)


def test_a_method_without_a_finite_result_is_not_advised() -> None:
    diverged, good = [math.inf, 1.0, 1.0, 1.0, 1.0], [1.0] * 5
    assert choose([outcome("fedavg", diverged, "loss"), outcome("local", good, "loss")]).name == "local"
    assert choose([outcome("fedavg", []), outcome("local", [0.9] * 5)]).name == "local"
    advice = given(
        Finding("none", (SITES,), (), 0.4), metric="loss", fedavg=good, two_groups=diverged, local=[1.5] * 5
    )
    assert "nan" not in reasons(advice)
    assert "Each site alone would lose 0.5" in reasons(advice)


def test_groups_and_one_model_are_compared_on_the_same_sites() -> None:
    # Groups have no model for e, which does badly with every other.
    unfit = Finding("groups", (("a", "b"), ("c", "d")), ("e",), 0.0025)
    advice = given(unfit, fedavg=[0.95] * 4 + [0.8], discovery=[0.94] * 4, local=[0.9] * 4 + [0.8])
    assert advice.chosen == "fedavg"


def test_a_check_that_tested_nothing_says_nothing_of_scale() -> None:
    good = [0.95] * 5
    untested = Finding("too_few", (SITES,), (), None)
    assert "Standardising" not in reasons(given(TWO, untested, fedavg=good, discovery=good, local=good))


def test_rounds_that_are_samples_are_not_called_too_few_clients() -> None:
    found = finding_of({"verdict": "open", "p_value": None}, dict.fromkeys(SITES, 0))
    said = Words(given(found, fedavg=[0.9] * 5, local=[0.9] * 5), OWN)
    assert said.answer == "5 sites, of which too few took part to look for groups: FedAvg, one model for all."
    assert "With more rounds" in " ".join(said.changes)


def test_what_an_interval_is_over_is_said_of_the_sites_compared() -> None:
    names = [f"s{number}" for number in range(10)]
    values = {name: Figure(0.95, 40) for name in names}
    values["s9"] = Figure(0.5, 40)
    outcomes = {
        name: Outcome(name, "accuracy", values, values, {}, 1, 1.0, "") for name in ("fedavg", "discovery", "local")
    }
    advice = advise(Finding("lone", (tuple(names[:9]), ("s9",)), ("s9",), 0.0025), outcomes)
    assert advice.own_is_low == ("s9",)
    assert "for these 9 sites" in Words(advice, OWN).interval
