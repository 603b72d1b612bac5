"""Test records of a class that no training record has: left out where no site trains on it, counted and warned of."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import florets
from florets.commands import main

WARNING = "warning b: 1 test record of a class that no site trains on, left out."


def part(rng: np.random.Generator, n: int, odd: int | None, form: str) -> Any:
    """Return samples of two classes, one of them of class `odd`."""
    y = np.arange(n) % 2
    x = rng.normal(size=(n, 2)) + y[:, None]
    if odd is not None:
        y[0] = odd
    if form == "arrays":
        return x.astype("f4"), y
    names = np.array(["ill", "well", "dead"])[y]
    return (x.astype("f4"), names) if form == "names" else pd.DataFrame({"u": x[:, 0], "v": x[:, 1], "y": names})


@pytest.mark.parametrize("form", ["arrays", "names", "frames"])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_site_takes_part_and_the_record_is_tested_if_another_site_trains_on_its_class(
    tmp_path: Path, form: str, elsewhere: bool
) -> None:
    rng = np.random.default_rng(0)
    clients = {name: {"train": part(rng, 60, None, form), "test": part(rng, 20, None, form)} for name in "abc"}
    clients["b"]["test"] = part(rng, 20, 2, form)
    if elsewhere:
        # Of words a class is named from five records on.
        both = [part(rng, 30, None, form), *(part(rng, 3, 2, form) for _ in range(6))]
        joined = pd.concat(both) if form == "frames" else tuple(map(np.concatenate, zip(*both, strict=True)))
        clients["a"]["train"] = joined
    keys = {"results_dir": tmp_path, **({"target": "y"} if form == "frames" else {})}
    found = florets.check(clients, **keys)
    assert found.is_usable
    assert (WARNING in found.text) != elsewhere
    run = florets.run(clients=clients, strategy="fedavg", num_rounds=1, quiet=True, pictures=False, **keys)
    assert run.clients.set_index("client")["test_examples"].to_dict() == {"a": 20, "b": 19 + elsewhere, "c": 20}


@pytest.mark.parametrize("seed", range(3))
def test_the_check_finds_what_a_run_refuses_whatever_the_split(tmp_path: Path, seed: int) -> None:
    for site in "abc":
        table = part(np.random.default_rng(0), 60, None, "frames")
        if site == "c":
            table.loc[7, "y"] = "wel"
        (tmp_path / "sites").mkdir(exist_ok=True)
        table.to_csv(tmp_path / "sites" / f"{site}.csv", index=False)
    given = ["check", f"data_dir={tmp_path / 'sites'}", "target=y", f"results_dir={tmp_path}", f"seed={seed}"]
    assert main.main(given) == 1
    assert main.main([*given, "task.table.classes={ill: [ill], well: [well]}"]) == 1
    assert main.main([*given, "task.table.classes={ill: [ill], well: [well, wel]}"]) == 0
