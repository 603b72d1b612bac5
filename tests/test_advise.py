"""`florets advise`: what follows from a finding and from results, in sentences, and the runs that it takes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from advise_examples import LONE, NONE, OWN, SITES, TWO, given, outcome, words

from florets.api.advise import Advice
from florets.commands.main import main
from florets.conf.schema import Config
from florets.strategies.base.federation import FederationError, TrainingDiverged
from florets.studies.advise.advice import Evidence
from florets.studies.advise.causes import Reason
from florets.studies.advise.compare import Criterion
from florets.studies.advise.methods import (
    RIDGE,
    Question,
    candidate_run,
    candidates,
    command,
    first_run,
    rounds_of,
    search,
)
from florets.studies.advise.outcomes import finding_of
from florets.studies.advise.page import write_page


def evidence(verdict: str, p_value: float | None = 0.0025, needed: int = 5) -> dict[str, object]:
    return {"verdict": verdict, "p_value": p_value, "needed": needed}


def test_what_discovery_found_is_said_in_the_terms_of_advice() -> None:
    two = finding_of(evidence("groups"), {"a": 1, "b": 1, "c": 1, "d": 0, "e": 0})
    assert (two.kind, two.groups, two.lone, two.num_clients) == ("groups", (("a", "b", "c"), ("d", "e")), (), 5)
    one_alone = finding_of(evidence("groups"), {"a": 0, "b": 0, "c": 0, "d": 0, "e": 1})
    assert (one_alone.kind, one_alone.lone) == ("lone", ("e",))
    # A site of one class took no part in the search: that d is left with it makes d alone, and not two a group.
    placed = finding_of(evidence("groups"), {"a": 0, "b": 0, "c": 0, "d": 1, "e": 1}, ["e"])
    assert (placed.kind, placed.lone) == ("lone", ("d",))
    none = finding_of(evidence("none", 0.4), dict.fromkeys(SITES, 0))
    assert (none.kind, none.groups, none.num_clients) == ("none", (SITES,), 5)
    kinds = [("all_differ", 5, "all_differ"), ("too_few", 5, "too_few"), ("open", 3, "open")]
    for verdict, needed, kind in kinds:
        assert finding_of(evidence(verdict, None, needed), {"a": 0, "b": 0}).kind == kind


def test_no_groups_give_fedavg_and_what_the_others_would_do() -> None:
    good = [0.95] * 5
    advice = given(NONE, fedavg=good, tuned=good, local=[0.8] * 5)
    said = words(advice)
    assert said.answer == "5 sites, no groups (p = 0.41): one model for all (FedAvg)."
    figures, alone = said.reasons
    assert figures == "Expected on new records: accuracy 95.0 % (constant answer: 50.0 %)."
    assert "worse by 15.0 ± " in alone
    assert [one.name for one in advice.outcomes] == ["fedavg", "tuned", "local"]
    assert said.short.splitlines()[-1].endswith(
        "min_clients=5 strategy=fedavg train.ridge=0.1 train.local_epochs=1 num_rounds=17 statistics=true"
    )
    assert "3 MB sent and received by all sites in 17 rounds, 12 s" in said.short
    assert "for these 5 sites, from their test records" in said.interval
    simulated = words(advice, "num_clients=5")
    assert simulated.answer.startswith("5 clients, no groups")
    assert [simulated.named(keys) for keys in (("2", "3"), ("b",))] == ["clients 2 and 3", "b"]


def test_two_groups_give_a_model_each_and_one_explanation() -> None:
    mixed, good = [0.9, 0.9, 0.9, 0.1, 0.1], [0.95] * 5
    evidence = Evidence(reasons=(Reason("rule", ("d", "e"), cross=(2.5, 0.1)),))
    said = words(given(TWO, evidence, fedavg=mixed, discovery=good, tuned=[0.8] * 5, local=good))
    assert said.answer == "5 sites in 2 groups (p = 0.0025): one model per group (strategy=discovery)."
    facts = ("a, b and c | d and e", "d and e: the other group's model has a loss of 2.5", "10.0 % correct")
    assert all(fact in text for fact, text in zip(facts, said.reasons[1:4], strict=True))
    assert "strategy=discovery k=auto" in said.command
    same = words(given(TWO, fedavg=good, discovery=[0.925] * 5, local=good))
    assert same.answer.endswith("one model for all (FedAvg).")
    assert "One model serves them as well as one per group does." in same.reasons
    for others, said_of_slopes in (
        (good, "serves as well as a model for each of"),
        ([0.8] * 5, "explains more than"),
    ):
        own = words(given(TWO, fedavg=mixed, slopes=good, discovery=others, local=good))
        text = f"A set of coefficients per site {said_of_slopes} the 2 groups that were detected (p = 0.0025)."
        assert text in own.reasons


def test_a_unit_that_is_not_declared_is_no_other_rule() -> None:
    unit = Reason("unit", ("e",), factor=3.0)
    own = {"fedavg": [0.95] * 4 + [0.05], "local": [0.95] * 5}
    said = words(given(LONE, Evidence(reasons=(unit,)), **own))
    assert said.answer.endswith(", until the unit at e is declared: then ask again.")
    assert "all columns of e are about 3 times" in " ".join(said.reasons)
    assert "resembles e" not in " ".join(said.reasons)


def test_a_site_that_fits_nobody_is_named_with_what_may_be_wrong_with_it() -> None:
    methods = {"fedavg": [0.95] * 4 + [0.05], "discovery": [0.95] * 5, "local": [0.95] * 4 + [0.5]}
    said = words(given(LONE, **methods))
    assert said.answer.startswith("5 sites, no groups; no other site resembles e (p = 0.0025): one model")
    text = "No other site resembles e: accuracy 50.0 % with its own model alone, 95.0 % elsewhere."
    assert text in " ".join(said.reasons)


def test_nothing_useful_is_said_first() -> None:
    said = words(given(NONE, Evidence(left_out=("f",)), fedavg=[0.5] * 5, local=[0.5] * 5))
    assert said.answer.startswith(
        "Nothing to advise yet: no method is better than the constant answer beyond chance. 5 sites"
    )
    assert "reaches accuracy 50.0 %; the constant answer reaches 50.0 %" in said.reasons[0]
    assert said.reasons[-1] == "Left out of every run: f. `florets check` says why."
    assert "Use:" not in said.short


def test_the_page_is_whole_in_itself_and_takes_names_as_text(tmp_path: Path) -> None:
    advice = given(TWO, Evidence(names={"a": "<b>{x}"}), fedavg=[0.5] * 5, discovery=[0.9] * 5, local=[0.9] * 5)
    page = write_page(tmp_path, words(advice)).read_text(encoding="utf-8")
    assert "<b>{x}" not in page
    assert "&lt;b&gt;{x}" in page
    assert "the most frequent class" in page
    assert not any(word in page for word in ("http://", "https://", "<script", 'src="/'))


def test_every_method_has_the_same_budget_and_rates_and_what_is_typed_holds() -> None:
    question = replace(Question.of(OWN), by_newton=False, measure="log_loss")
    assert (len(question.rates), question.rates[0]) == (3, question.base.train.learning_rate)
    methods = candidates(question, NONE)
    assert list(methods) == ["fedavg", "local"]
    runs = {name: candidate_run(question, name, keys, 0.02) for name, keys in methods.items()}
    for config in runs.values():
        assert (config.num_rounds, config.patience, config.measure, config.statistics) == (40, 3, "log_loss", True)
        assert (config.train.learning_rate, config.train.solver) == (0.02, "sgd")
        assert config.task.validation_fraction == 0.2
    assert "discovery" in candidates(question, TWO)
    assert first_run(question).strategy.settings.place_one_class is True  # type: ignore[attr-defined]
    typed = Question.of([*OWN, "num_rounds=6", "train.learning_rate=0.5", "patience=9"])
    config = candidate_run(typed, "fedavg", methods["fedavg"], typed.rates[0])
    assert (typed.rates, config.num_rounds, config.patience) == ((0.5,), 6, 9)
    shown = command(question, "discovery", 0.02, 17)
    assert shown.endswith("strategy=discovery k=auto train.learning_rate=0.02 num_rounds=17 statistics=true")


def test_linear_models_are_compared_by_ridges_in_few_rounds_and_without_what_cannot_matter() -> None:
    question = replace(Question.of(OWN), measure="log_loss")
    assert question.by_newton
    assert (question.tuned_key, question.rates) == (RIDGE, (1.0, 10.0, 100.0, 0.1))
    assert list(candidates(question, NONE)) == ["fedavg", "intercept", "slopes", "local"]
    config = candidate_run(question, "fedavg", candidates(question, NONE)["fedavg"], 10.0)
    assert (config.train.solver, config.train.ridge, config.num_rounds, config.eval_every) == ("newton", 10.0, 8, 8)
    values = Question.of([*OWN, "task.loss=squared_error", "task.table.regression=true"])
    rounds = {name: rounds_of(values, name) for name in candidates(values, TWO)}
    # Of squared errors one step ends at the minimum; groups are found once one model fits, and theirs take a few.
    assert rounds == {
        "fedavg": 3, "intercept": 3, "slopes": 3, "local": 1, "discovery": 16,
    }  # fmt: skip
    assert first_run(question).num_rounds == first_run(values).num_rounds == 16
    # Who trains alone takes all steps in one round.
    assert "train.local_epochs=8 train.ridge=10 num_rounds=1 statistics=true" in command(question, "local", 10.0, 1)
    assert "train.ridge=10 train.local_epochs=1 num_rounds=3" in command(question, "fedavg", 10.0, 3)
    # The run that looks for groups is the run of one model per group as well.
    groups = candidate_run(question, "discovery", candidates(question, TWO)["discovery"], 1.0)
    assert groups == replace(first_run(question), measure=groups.measure, pictures=False)
    assert Question.of([*OWN, "train.ridge=3"]).rates == (3.0,)


def test_of_three_rates_the_best_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, float]] = []
    accuracies = {("fedavg", 0.1): 0.8, ("fedavg", 0.3): 0.9, ("local", 0.1): 0.8, ("local", 0.3): 0.7}

    def run(name: str, config: Config) -> Path:
        method = name.split("-rate-", maxsplit=1)[0]
        asked.append((method, config.train.learning_rate))
        return Path(f"{method} {config.train.learning_rate}")

    def read(name: str, folder: Path, rate: float = 0.0, tuned: bool = False) -> object:
        method, _, text = str(folder).partition(" ")
        return outcome(name, [accuracies.get((method, float(text)), 0.6)] * 5)

    monkeypatch.setattr("florets.studies.advise.methods.read_outcome", read)
    question = replace(Question.of(OWN), by_newton=False)
    found = search(question, candidates(question, NONE), Criterion("accuracy"), run)
    assert asked == [(method, rate) for method in ("fedavg", "local") for rate in (0.1, 0.3, 0.0333)]
    figures = {name: Criterion("accuracy").figure(one.validation) for name, one in found.items()}
    assert figures == pytest.approx({"fedavg": 0.9, "tuned": 0.9, "local": 0.8})


def test_where_training_diverges_the_first_reason_is_told() -> None:
    def run(name: str, config: Config) -> Path:
        raise TrainingDiverged(f"{config.train.learning_rate}: the arrays hold NaN or infinite values")

    question = replace(Question.of(OWN), by_newton=False)
    with pytest.raises(FederationError, match=r"no run finished; the first said: 0\.1: the arrays hold NaN"):
        search(question, candidates(question, NONE), Criterion("r2"), run)


TINY = (
    "num_clients=6", "task.num_clusters=2", "task.model_options.hidden=[8]", "num_rounds=2", "quiet=true",
    "train.learning_rate=0.03", "checkpoint_every=0",
)  # fmt: skip


def test_a_whole_answer_on_digits_leaves_a_page_and_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["advise", *TINY, f"results_dir={tmp_path}"]) == 0
    said = capsys.readouterr().out
    (page,) = tmp_path.rglob("advice.html")
    assert said.rstrip().endswith(f"Page: {page}")
    values = json.loads((page.parent / "advice.json").read_text())
    assert values["finding"]["kind"] == "groups"
    assert [len(group) for group in values["finding"]["groups"]] == [3, 3]
    names = {"fedavg", "discovery", "tuned", "local"}
    assert {one["name"] for one in values["methods"]} == names
    assert all(len(one["test"]) == len(one["validation"]) == 6 for one in values["methods"])
    assert (values["measure"], len(values["sites"])) == ("log_loss", 6)
    assert values["constant"] > 2
    assert page.parent.relative_to(tmp_path).parts[:2] == ("quickstart", "advise")
    found = Advice(page.parent)
    assert (found.text, found.chosen) == (said.rstrip(), values["chosen"])
    assert f"Use: {found.command}\n" in said
    found.show()
    assert capsys.readouterr().out == said
    assert found._repr_html_().startswith("<iframe srcdoc=")


def test_nodes_whose_targets_are_noise_end_with_exit_code_1(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in SITES[:3]:
        (tmp_path / "data" / name).mkdir(parents=True)
        rows = [f"{x:.3f},{y}" for x, y in zip(rng.normal(size=80), rng.integers(0, 2, size=80), strict=True)]
        (tmp_path / "data" / name / "data.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    given = [f"data_dir={tmp_path / 'data'}", "target=y", f"results_dir={tmp_path}", "quiet=true", "pictures=false"]
    assert main(["advise", *given, "num_rounds=4", "train.learning_rate=0.1"]) == 1
    (text,) = tmp_path.rglob("advice.txt")
    assert text.read_text().startswith("Nothing to advise yet")
