"""`florets advise`: differences by hand, the choice, a sentence for every verdict, and one whole answer on digits."""

import json
import math
from pathlib import Path

import pytest

from florets.conf.problems import ConfigError
from florets.server_app.advise.advice import Advice, advise
from florets.server_app.advise.compare import choose, difference, low_sites
from florets.server_app.advise.findings import Finding, finding_of
from florets.server_app.advise.methods import Question, dry_check, other_runs
from florets.server_app.advise.outcomes import Figure, Metric, Outcome
from florets.server_app.advise.page import write_page
from florets.server_app.advise.words import Words, listed
from florets.server_app.app import advise as advise_nodes
from florets.server_app.local_grid import LocalGrid
from florets.server_app.main import main

SITES = ("a", "b", "c", "d", "e")
OWN = [
    *("experiment=own_data", "data_dir=somewhere", "task.partition_options.input_shape=[3]", "min_clients=5"),
    "task.partition_options.num_outputs=2",
]


def figures(values: list[float], records: int = 40) -> dict[str, Figure]:
    names = [*SITES, *(f"s{number:02d}" for number in range(len(values)))]
    return {name: Figure(value, records) for name, value in zip(names, values, strict=False)}


def outcome(name: str, *values: float, metric: Metric = "accuracy", test: list[float] | None = None) -> Outcome:
    """Results whose validation figures are `values`, as are those of the test unless they are given."""
    found = figures(list(values))
    tested = found if test is None else figures(test)
    return Outcome(name, metric, tested, found, dict.fromkeys(found, 0), 3_000_000, 12.0, "somewhere")


def test_few_clients_differ_by_what_the_choice_of_their_records_explains() -> None:
    first, second = {"a": Figure(0.9, 20), "b": Figure(0.8, 10)}, {"a": Figure(0.5, 20), "b": Figure(0.9, 10)}
    found = difference(first, second, "accuracy")
    # Successes 18, 8, 10, 9 of 20, 10, 20, 10, and one of either kind more.
    parts = [(19, 22), (9, 12), (11, 22), (10, 12)]
    variance = sum((k / n) * (1 - k / n) / n for k, n in parts)
    assert found.mean == pytest.approx(100 * (0.4 - 0.1) / 2)
    assert found.half == pytest.approx(100 * 1.959964 * math.sqrt(variance) / 2)
    assert found.clients == 2
    assert not found.is_gain
    assert not found.is_loss


def test_many_clients_and_losses_differ_by_students_interval() -> None:
    first, second = figures([0.9, 0.7] * 5), figures([0.8] * 10)
    found = difference(first, second, "accuracy")
    # Differences of +10 and -10 points: deviation 10.54, and t(9) is 2.2622.
    assert found.mean == pytest.approx(0.0, abs=1e-9)
    assert found.half == pytest.approx(2.262157 * 10.540926 / math.sqrt(10), rel=1e-6)
    losses = difference(figures([1.0, 2.0, 3.0]), figures([2.0, 4.0, 6.0]), "loss")
    # Saved are 1, 2 and 3: deviation 1, and t(2) is 4.3027.
    assert (losses.mean, losses.clients) == (2.0, 3)
    assert losses.half == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
    assert not losses.is_gain
    assert difference(figures([1.0]), figures([2.0]), "loss").half == math.inf
    # Only clients that both have results of count; a model that diverged says nothing.
    assert difference(figures([1.0, 2.0]), figures([3.0]), "loss").clients == 1
    assert difference(figures([1.0, math.inf]), figures([3.0, 1.0]), "loss").half == math.inf


def test_the_simplest_method_is_chosen_that_none_beats_by_more_than_chance() -> None:
    fedavg, tuned = outcome("fedavg", *[0.9] * 5), outcome("tuned", *[0.93] * 5)
    local = outcome("local", *[0.97] * 5)
    assert choose([fedavg, tuned]).name == "fedavg"
    assert choose([fedavg, tuned, local]).name == "tuned"
    assert choose([outcome("fedavg", *[0.1, 0.1, 0.9, 0.9, 0.9]), tuned, local]).name == "tuned"
    # Nothing is known of the validation records: the first.
    assert choose([outcome("fedavg"), outcome("local")]).name == "fedavg"


def test_clients_below_the_others_are_told_and_one_does_not_hide_another() -> None:
    assert low_sites(outcome("local", 0.95, 0.95, 0.95, 0.95, 0.5)) == ["e"]
    assert low_sites(outcome("local", 0.95, 0.95, 0.95, 0.5, 0.5)) == ["d", "e"]
    assert low_sites(outcome("local", 0.95, 0.9, 0.95, 0.95, 0.9)) == []
    assert low_sites(outcome("local", 0.1, 0.1, 0.1, 0.1, 9.0, metric="loss")) == []


def evidence(verdict: str, p_value: float | None = 0.0025) -> dict[str, object]:
    return {"verdict": verdict, "p_value": p_value}


def test_what_discovery_found_is_told_in_the_terms_of_advice() -> None:
    two = finding_of(evidence("groups"), {"a": 1, "b": 1, "c": 1, "d": 0, "e": 0})
    assert (two.kind, two.groups, two.lone, two.num_clients) == ("groups", (("a", "b", "c"), ("d", "e")), (), 5)
    one_alone = finding_of(evidence("groups"), {"a": 0, "b": 0, "c": 0, "d": 0, "e": 1})
    assert (one_alone.kind, one_alone.lone) == ("lone", ("e",))
    none = finding_of(evidence("none", 0.4), dict.fromkeys(SITES, 0))
    assert (none.kind, none.groups, none.num_clients) == ("none", (SITES,), 5)
    assert finding_of(evidence("all_differ"), dict.fromkeys(SITES, 0)).kind == "all_differ"
    assert finding_of(evidence("too_few", None), {"a": 0, "b": 0}).kind == "too_few"


NONE = Finding("none", (SITES,), (), 0.41)
TWO = Finding("groups", (("a", "b", "c"), ("d", "e")), (), 0.0025)
LONE = Finding("lone", (("a", "b", "c", "d"), ("e",)), ("e",), 0.0025)


def given(finding: Finding, after: Finding | None = None, **values: list[float]) -> Advice:
    outcomes = {name: outcome(name, *figures) for name, figures in values.items()}
    return advise(finding, outcomes, after)


def words(advice: Advice, *overrides: str) -> Words:
    return Words(advice, Question.of(list(overrides) or OWN))


def test_no_groups_give_fedavg_and_what_two_groups_would_do() -> None:
    good = [0.95] * 5
    advice = given(NONE, fedavg=good, tuned=good, local=[0.8] * 5, clove=good, two_groups=[0.85] * 5, discovery=good)
    said = words(advice)
    assert said.answer == "5 sites, no groups (p = 0.41): FedAvg, one model for all."
    assert said.reasons == [
        "Sites that do not differ at all look as different as these in 41 of 100 cases.",
        "Two groups would lose 10.0 ± 6.1 points.",
        "Each site alone would lose 15.0 ± 6.6 points.",
    ]
    assert [one.name for one in advice.outcomes] == ["fedavg", "tuned", "two_groups", "clove", "local"]
    assert "Groups are claimed at p = 0.005 or less." in " ".join(said.changes)
    assert said.short.splitlines()[-1].endswith("num_outputs=2 strategy=fedavg")
    assert "Cost: 3 MB sent and received by all sites together in 8 rounds, which took 12 s" in said.short
    assert "± is a 95 % interval for these 5 sites" in said.short
    assert words(advice, "num_clients=5").answer.startswith("5 clients, no groups")
    near = given(Finding("none", (SITES,), (), 0.02), fedavg=good, local=good)
    assert "p = 0.02 is near" in " ".join(words(near).changes)


def test_differences_that_chance_explains_are_called_so_and_gains_too() -> None:
    advice = given(NONE, fedavg=[0.95] * 5, two_groups=[0.95] * 5, local=[0.95] * 5)
    assert words(advice).reasons[1] == "Two groups would change +0.0 ± 4.9 points, which chance explains."
    fedavg, groups = (outcome(name, test=[value] * 5) for name, value in (("fedavg", 0.8), ("two_groups", 0.95)))
    better = Advice(NONE, (fedavg, groups), "fedavg")
    assert words(better).reasons[1] == "Two groups would gain 15.0 ± 6.6 points on the test records."


def test_two_groups_give_a_model_each() -> None:
    mixed, good = [0.9, 0.9, 0.9, 0.1, 0.1], [0.95] * 5
    advice = given(TWO, fedavg=mixed, discovery=good, tuned=[0.8] * 5, clove=good, local=good)
    said = words(advice)
    assert said.answer == "5 sites in 2 groups (p = 0.0025): one model for each group (strategy=discovery)."
    assert said.reasons[0] == "The groups: a, b and c | d and e."
    assert said.reasons[2] == "One model for all (FedAvg) would lose 37.0 ± 5.6 points."
    assert "strategy=discovery k=auto" in said.short
    assert said.reasons[1].startswith("One model for all is wrong on most records of d and e (10.0 % right). Of two")
    # Half of the records right is what a model does that has learned nothing, and with more classes there is no code.
    half = given(TWO, fedavg=[0.9, 0.9, 0.9, 0.45, 0.45], discovery=good, local=good)
    digits = Question.of(["num_clients=5"])
    assert not any("coded" in text for each in (words(half), Words(advice, digits)) for text in each.reasons)
    same = given(TWO, fedavg=good, discovery=[0.94] * 5, local=good)
    assert words(same).answer.endswith("FedAvg, one model for all.")
    assert "One model serves all of them as well" in words(same).reasons[1]


def test_groups_that_go_when_inputs_are_standardised_lie_in_the_scale() -> None:
    after = Finding("none", (SITES,), (), 0.33)
    advice = given(TWO, after, fedavg=[0.8] * 5, discovery=[0.85] * 5, local=[0.8] * 5, standardised=[0.95] * 5)
    said = words(advice)
    assert advice.chosen == "standardised"
    assert said.answer.endswith(
        ": FedAvg after each site has standardised its own inputs (task.data_options.standardise=true)."
    )
    assert "gone once each site standardises its own inputs (p = 0.33)" in " ".join(said.reasons)
    assert "task.data_options.standardise=true" in said.short.splitlines()[-1]
    worse = given(TWO, after, fedavg=[0.8] * 5, discovery=[0.95] * 5, local=[0.8] * 5, standardised=[0.7] * 5)
    assert worse.chosen == "discovery"
    still = given(TWO, TWO, fedavg=[0.8] * 5, discovery=[0.95] * 5, local=[0.8] * 5)
    assert "does not remove the difference" in " ".join(words(still).reasons)


def test_a_site_that_fits_nobody_is_named_with_what_may_be_wrong_with_it() -> None:
    noisy = given(LONE, fedavg=[0.95] * 4 + [0.5], discovery=[0.95] * 4 + [0.5], local=[0.93] * 4 + [0.5])
    said = words(noisy)
    assert said.answer == (
        "5 sites, no groups of at least two; e fits nobody (p = 0.0025): FedAvg, one model for all."
    )
    assert said.reasons[0].startswith(
        "No model predicts the records of e, its own neither (50.0 % alone; mean of the others 93.0 %): look for "
        "mistakes there"
    )
    # Chance alone decides what is predicted of such records: they are in no figure of the others.
    assert "Training without e would change +0.0 ± 5.5 points, which chance explains." in said.reasons
    assert "Expected: 95.0 % on records that no model has seen (mean over sites); worst at a, 95.0 %." in said.short
    # What a model of its own happens to gain on records without a rule is no reason for it.
    luck = [0.95] * 4 + [0.75]
    assert given(LONE, fedavg=[0.95] * 4 + [0.1], discovery=luck, local=[0.95] * 4 + [0.6]).chosen == "fedavg"
    other = given(LONE, fedavg=[0.95] * 4 + [0.05], discovery=[0.95] * 5, local=[0.95] * 5)
    assert other.chosen == "discovery"
    assert words(other).reasons[0].startswith("e can be predicted from its own records: it follows another rule")


def test_where_every_site_differs_or_they_are_too_few_the_methods_decide() -> None:
    differ = given(Finding("all_differ", (SITES,), (), 0.0025), fedavg=[0.5] * 5, tuned=[0.7] * 5, local=[0.95] * 5)
    assert words(differ).answer == (
        "5 sites, and each differs from every other (p = 0.0025), so that groups do not help: no federation: each "
        "site does better with a model of its own."
    )
    few = given(Finding("too_few", (("a", "b"),), (), None), fedavg=[0.9, 0.9], tuned=[0.9, 0.9], local=[0.9, 0.9])
    assert words(few).answer == "2 sites, too few to tell groups from chance: FedAvg, one model for all."
    assert "With more sites" in words(few).changes[1]


def test_losses_are_told_as_losses() -> None:
    losses = {"fedavg": [0.5, 0.625, 0.75], "local": [0.9, 1.1, 1.0], "two_groups": [0.625, 0.75, 0.875]}
    outcomes = {name: outcome(name, *values, metric="loss") for name, values in losses.items()}
    said = words(advise(Finding("none", (SITES[:3],), (), 0.4), outcomes))
    assert said.reasons[1] == "Two groups would lose 0.125 ± 0 of loss."
    assert "worst at c, 0.75" in said.short
    assert "Student's t" in said.interval


def test_names_are_listed_as_one_says_them() -> None:
    said = words(given(NONE, fedavg=[0.9] * 5), "num_clients=5")
    assert [said.named(keys) for keys in (("2",), ("2", "3"), ("b",))] == ["client 2", "clients 2 and 3", "b"]
    assert [listed(SITES[:n]) for n in (1, 2, 3)] == ["a", "a and b", "a, b and c"]
    assert listed([str(n) for n in range(9)]) == "0, 1, 2, 3, 4, 5 and 3 more"


def test_the_page_is_whole_in_itself_and_takes_names_as_text(tmp_path: Path) -> None:
    strange = Finding("groups", (("<b>x", "y"), ("z", "w")), (), 0.0025)
    tests = dict.fromkeys(("<b>x", "y", "z", "w"), Figure(0.9, 30))
    outcomes = {
        name: Outcome(name, "accuracy", tests, {}, {}, 10**6, 3.0, "")
        for name in ("fedavg", "discovery", "tuned", "clove", "local")
    }
    advice = advise(strange, outcomes)
    page = write_page(tmp_path, advice, Question.of(OWN)).read_text(encoding="utf-8")
    assert "<b>x" not in page
    assert "&lt;b&gt;x" in page
    assert "What would change this answer" in page
    assert page.count("<circle") == 5 * 4
    assert not any(word in page for word in ("http://", "https://", "<script", 'src="/'))


def test_keys_that_the_comparison_decides_are_refused_before_any_work() -> None:
    for key in ("strategy=clove", "k=3", "strategy.memory=true", "stop_at_ari=0.9"):
        with pytest.raises(ConfigError, match="compares strategies itself; leave it out"):
            Question.of([key])
    Question.of(["strategy.fraction_train=0.5"])
    assert main(["advise", "strategy=ifca"]) == 2
    assert main(["advise", "--no-such-option"]) == 2


def test_every_method_has_the_same_budget_and_records() -> None:
    question = Question.of([*OWN, "num_rounds=6", "train.local_epochs=3"])
    runs = other_runs(question, NONE)
    assert list(runs) == ["fedavg", "local", "clove", "two_groups"]
    for config in runs.values():
        assert (config.num_rounds, config.eval_every, config.task.validation_fraction) == (6, 6, 0.2)
        assert config.train == question.base.train
    assert (runs["fedavg"].fine_tune_epochs, runs["clove"].k, runs["two_groups"].k) == (3.0, 2, 2)
    assert other_runs(question, Finding("groups", (("a", "b"), ("c", "d"), ("e", "f")), (), 0.0025))["clove"].k == 3
    check = dry_check(question, TWO)
    assert check is not None
    assert (check.num_rounds, check.task.data_options["standardise"]) == (1, True)
    assert dry_check(question, NONE) is None
    assert dry_check(Question.of([*OWN, "task.data_options.standardise=true"]), TWO) is None
    assert dry_check(Question.of(["num_clients=5"]), TWO) is None


TINY = (
    "num_clients=6", "task.num_clusters=2", "task.model_options.hidden=[8]", "num_rounds=2", "quiet=true",
    "train.learning_rate=0.03", "checkpoint_every=0",
)  # fmt: skip


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.slow
def test_a_whole_answer_on_digits_leaves_a_page_and_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", *TINY, f"results_dir={tmp_path}"]) == 0
    said = capsys.readouterr().out
    assert said.splitlines()[-2].startswith("Use: florets num_clients=6")
    (page,) = tmp_path.rglob("advice.html")
    assert said.rstrip().endswith(f"Page: {page}")
    values = json.loads((page.parent / "advice.json").read_text())
    assert values["finding"]["kind"] == "groups"
    assert [len(group) for group in values["finding"]["groups"]] == [3, 3]
    assert {one["name"] for one in values["outcomes"]} == {"fedavg", "discovery", "tuned", "clove", "local"}
    assert all(len(one["test"]) == len(one["validation"]) == 6 for one in values["outcomes"])
    runs = {path.parent.name for path in page.parent.rglob("summary.json")}
    assert runs == {"discovery", "fedavg", "local", "clove"}
    assert page.parent.relative_to(tmp_path).parts[:2] == ("quickstart", "advise")


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
def test_an_app_on_nodes_answers_as_the_command_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from florets.client_app.app import app as client_app

    monkeypatch.chdir(tmp_path)
    run_config = {"advise": True, "overrides": " ".join(TINY), "results-dir": str(tmp_path), "seed": -1, "k": -1}
    folder = advise_nodes(LocalGrid(client_app, 6), run_config)
    assert (folder / "advice.html").is_file()
    for key in ("resume", "config-json"):
        with pytest.raises(ConfigError, match="does not go with advise=true"):
            advise_nodes(LocalGrid(client_app, 6), {**run_config, key: "x"})
