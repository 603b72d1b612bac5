import json
import math

import pytest
from results_examples import FOUND, MIXED, TRUTH, evaluations, report

from florets.engines.jobs import headline
from florets.reports.scores import metrics_of
from florets.reports.summary import (
    RunSummary,
    reaches,
    round_line,
    round_seconds,
    stability_words,
    summarise,
)
from florets.server_app.progress import describe
from florets.strategies.base.report import STABLE_FROM, Evaluation


def summary_of(lines, **extra):
    return summarise(lines, experiment="tiny", strategy="clove", seed=3, folder="here", **extra)


def test_a_line_holds_the_figures_of_its_round():
    line = round_line(report(4, participants=("00", "02", "03"), assignment=MIXED), TRUTH)

    assert line["round"] == 4
    assert line["phase"] == "clustering"
    assert line["ari"] == 0.0
    # Truth 0 1 1, found 0 0 1: one pair wrongly together, one wrongly apart, one rightly apart.
    assert line["ari_participants"] == -0.5
    assert line["accuracy"] == 0.75
    assert line["accuracy_std"] == pytest.approx(math.sqrt(1 / 32))
    assert (line["loss"], line["loss_std"], line["train_loss"]) == (0.25, 0.0, 0.5)
    assert line["cluster_sizes"] == [3, 1]
    assert (line["participants"], line["evaluated"], line["diverged"]) == (3, 4, 0)
    assert (line["bytes_down"], line["bytes_up"]) == (3000, 1000)
    assert line["seconds"] == {"losses": 0.2, "train": 0.5, "total": 1.0}
    assert line["replies"] == {"ok": 8, "error": 0, "missing": 0, "invalid": 0}


def test_the_numbers_of_the_clusters_do_not_matter_to_the_ari():
    assert round_line(report(1, assignment=FOUND), TRUTH)["ari"] == 1.0


def test_a_model_without_clients_has_size_zero():
    assert round_line(report(1, assignment={"00": 2, "01": 0}), TRUTH)["cluster_sizes"] == [1, 0, 1]


def test_ari_is_null_where_no_truth_is_known():
    line = round_line(report(1), {})
    assert line["ari"] is None
    assert line["ari_participants"] is None


def test_a_task_of_one_group_has_no_ari_whatever_was_found():
    for found in (dict.fromkeys(TRUTH, 0), {key: n for n, key in enumerate(TRUTH)}):
        line = round_line(report(1, assignment=found), dict.fromkeys(TRUTH, 0))
        assert (line["ari"], line["ari_participants"]) == (None, None)
        assert "ARI" not in describe(line)


def test_who_has_not_taken_part_in_one_model_is_not_said_to_lack_a_place():
    few = {"00": 0, "01": 0}
    one = round_line(report(1, assignment=few, num_clusters=1), TRUTH, clients=TRUTH)
    assert "(2 clients not sampled yet)" in describe(one)
    assert "(2 clients not sampled yet)" in headline(summary_of([one]))
    assert "(2 clients not placed)" in describe(round_line(report(1, assignment=few), TRUTH, clients=TRUTH))


def test_ari_is_over_the_clients_that_have_an_assignment_and_a_truth():
    line = round_line(report(1, assignment={"00": 0, "01": 0, "02": 1, "99": 1}), TRUTH)
    assert line["ari"] == 1.0


def test_a_line_says_over_how_many_clients_its_ari_is():
    line = round_line(report(1, assignment={"00": 0, "01": 0, "02": 1, "99": 1}), TRUTH)
    assert (line["ari_clients"], line["ari_of"]) == (3, 4)
    assert "ARI 1.000 (3 of 4 clients)" in describe(line)
    assert "of 4 clients" not in describe(round_line(report(1), TRUTH))


def test_the_ari_of_anchors_alone_is_told_but_ends_no_search():
    anchors = {"00": 0, "02": 1}
    few = round_line(report(1, phase="moment_descent", assignment=anchors), TRUTH)
    assert (few["ari"], reaches(few, 0.9)) == (1.0, False)
    # Where every client is an anchor, and where clients have not taken part yet, it counts.
    assert reaches(round_line(report(1, phase="moment_descent"), TRUTH), 0.9)
    assert reaches(round_line(report(1, assignment=anchors), TRUTH), 0.9)
    lines = [{**few, "round": number} for number in range(1, 11)]
    summary = summary_of([*lines, round_line(report(11, phase="refine"), TRUTH)])
    assert (summary.first_round_ari_90, summary.ari_at_10, summary.final_ari) == (11, None, 1.0)


def test_accuracy_is_null_in_a_round_without_evaluation():
    line = round_line(report(1, evaluations={}, train_loss=None), TRUTH)
    assert [line[key] for key in ("accuracy", "accuracy_std", "loss", "loss_std", "train_loss")] == [None] * 5
    assert line["evaluated"] == 0


def test_a_diverged_client_makes_the_mean_loss_null_and_is_counted():
    results = {**evaluations(), "03": Evaluation(20, math.nan, 0.1)}
    line = round_line(report(1, evaluations=results, train_loss=math.inf), TRUTH)
    assert (line["loss"], line["loss_std"], line["diverged"], line["train_loss"]) == (None, None, 1, None)
    json.dumps(line, allow_nan=False)


def test_a_task_without_accuracy_has_its_loss():
    line = round_line(report(1, evaluations=evaluations(dict.fromkeys(TRUTH))), TRUTH)
    assert (line["accuracy"], line["loss"]) == (None, 0.25)


def test_the_time_of_a_round_is_its_total_or_else_the_sum_of_its_parts():
    assert round_seconds({"seconds": {"train": 0.5, "total": 2.0}}) == 2.0
    assert round_seconds({"seconds": {"train": 0.5, "losses": 0.25}}) == 0.75


def test_a_run_is_summed_up():
    lines = [round_line(report(r, assignment=MIXED if r < 3 else FOUND, stable=r >= 6), TRUTH) for r in range(1, 13)]
    summary = summary_of(lines)
    assert summary == RunSummary(
        experiment="tiny",
        strategy="clove",
        seed=3,
        rounds=12,
        final_accuracy=0.75,
        final_loss=0.25,
        final_ari=1.0,
        ari_at_10=1.0,
        first_round_ari_90=3,
        round_of_stability=6,
        bytes_down=36000,
        bytes_up=12000,
        seconds=12.0,
        folder="here",
        final_ari_clients=4,
        final_ari_of=4,
        final_metrics=metrics_of(evaluations().values()),
        final_num_clusters=2,
    )
    assert RunSummary.from_json(summary.to_json()) == summary


def test_a_clustering_that_the_last_round_froze_is_stable_from_the_next():
    lines = [round_line(report(1), TRUTH), round_line(report(2, details={STABLE_FROM: 3}), TRUTH)]
    summary = summary_of(lines)
    assert (summary.rounds, summary.round_of_stability) == (2, 3)
    assert stability_words(summary) == "stable after round 2"
    # Gone on with, the run has the same answer.
    summary = summary_of([*lines, round_line(report(3, stable=True), TRUTH)])
    assert (summary.round_of_stability, stability_words(summary)) == (3, "stable from round 3")


def test_what_a_run_never_reached_is_null():
    summary = summary_of([round_line(report(1, assignment=MIXED), TRUTH)])
    assert summary.ari_at_10 is None
    assert summary.first_round_ari_90 is None
    assert summary.round_of_stability is None


def test_a_run_of_no_rounds_has_a_summary_too():
    summary = summary_of([])
    assert (summary.rounds, summary.final_accuracy, summary.final_ari, summary.seconds) == (0, None, None, 0)


def test_the_final_result_is_that_of_the_last_evaluated_round():
    lines = [round_line(report(1), TRUTH), round_line(report(2, evaluations={}), TRUTH)]
    assert summary_of(lines).final_accuracy == 0.75


def test_the_evaluation_at_the_end_counts_before_that_of_a_round():
    lines = [round_line(report(1), TRUTH)]
    final = evaluations(dict.fromkeys(TRUTH, 1.0), loss=0.125)
    assert summary_of(lines, evaluations=final).final_accuracy == 1.0
    assert summary_of(lines, evaluations=final).final_loss == 0.125


def test_a_loss_that_diverged_at_the_end_is_not_replaced_by_an_older_one():
    lost = evaluations(dict.fromkeys(TRUTH), loss=math.nan)
    lines = [round_line(report(1), TRUTH), round_line(report(2, evaluations=lost), TRUTH)]
    assert summary_of(lines).final_loss is None
    assert summary_of(lines).final_accuracy is None


@pytest.mark.parametrize("text", ["[]", '{"experiment": "tiny"}'])
def test_a_summary_of_another_version_is_refused(text):
    with pytest.raises(ValueError, match="needs the keys"):
        RunSummary.from_json(text)
