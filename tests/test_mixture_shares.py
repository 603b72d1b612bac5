"""The clients' shares of the models: in a run's folder, and held to those in which their data mix true clusters."""

import csv
from pathlib import Path

import pytest

from florets.commands.main import main
from florets.conf.compose import compose
from florets.papers.measures import MEASURES, read_mixtures, share_error
from tests.method_runs import SMALL, play


def written(tmp_path: Path, strategy: str, *more: str) -> list[dict[str, str]]:
    given = [*SMALL, f"strategy={strategy}", *more, f"results_dir={tmp_path}", "-q", "pictures=false"]
    assert main(given) == 0
    (path,) = tmp_path.rglob("clients.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("strategy", ["fedem", "fedrc", "fedsoft"])
def test_a_runs_clients_have_the_shares_that_the_server_keeps(tmp_path: Path, strategy: str) -> None:
    rows = written(tmp_path, strategy, "strategy.fraction_train=0.5")
    kept = play(f"strategy={strategy}", "strategy.fraction_train=0.5").strategy.mixtures
    assert 3 <= len(kept) < 6
    for row in rows:
        told = [row["share_0"], row["share_1"]]
        mixture = kept.get(row["client"])
        # Who never took part has none.
        assert told == (["", ""] if mixture is None else [repr(float(share)) for share in mixture])
        if mixture is not None:
            assert row["found_cluster"] == str(int(mixture.argmax()))


def test_where_each_client_has_one_model_there_are_no_shares(tmp_path: Path) -> None:
    rows = written(tmp_path, "clove")
    assert not any(name.startswith("share") for name in rows[0])
    assert read_mixtures(next(tmp_path.rglob("clients.csv")).parent) == []


def test_shares_are_read_of_clients_whose_cluster_and_shares_are_known(tmp_path: Path) -> None:
    assert read_mixtures(tmp_path) == []
    lines = ["client,true_cluster,share_0,share_1", "0,1,0.25,0.75", "1,,0.5,0.5", "2,0,,", "3,0,1.0,0.0"]
    (tmp_path / "clients.csv").write_text("\n".join(lines) + "\n")
    assert read_mixtures(tmp_path) == [(1, [0.25, 0.75]), (0, [1.0, 0.0])]


def test_the_error_of_shares_by_hand() -> None:
    # Cluster 0 is model 1. True shares (0.2, 0.8) and (0.8, 0.2): errors 0.1, 0.1 and 0, 0.
    mixtures = [(0, [0.3, 0.7]), (1, [0.8, 0.2])]
    assert share_error(mixtures, 2, 0.8) == pytest.approx(0.05)
    assert share_error(mixtures[:1], 2, 0.8) == pytest.approx(0.1)
    # Everything in one model: off by 0.2 and by 0.8.
    assert share_error([(0, [1.0, 0.0]), (1, [1.0, 0.0])], 2, 0.8) == pytest.approx(0.5)
    # 0.6 of its own, 0.2 of each other one.
    assert share_error([(2, [0.2, 0.2, 0.6])], 3, 0.6) == pytest.approx(0.0)
    assert share_error(mixtures, 3, 0.8) is None
    assert share_error([], 2, 0.8) is None


def test_the_measure_is_shown_of_methods_with_shares_on_clients_that_mix_clusters() -> None:
    measure, preset = MEASURES["share_error"], "experiment=fedem/digits_mixture"
    keys = [[preset], [preset, "strategy=fedsoft"], [preset, "strategy=clove"], ["strategy=fedem"]]
    assert [measure.fits(compose(given)) for given in keys] == [True, True, False, False]
    values = {"mixtures": [(0, [0.7, 0.3]), (1, [0.2, 0.8])]}
    assert measure.read(values, compose([preset])) == pytest.approx(0.05)
    # Of a record that was written before there were any.
    assert measure.read({}, compose([preset])) is None
