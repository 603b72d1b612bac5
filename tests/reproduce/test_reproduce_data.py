"""Data of `florets reproduce`: which folder a run belongs to, and what is said where data are lacking."""

from pathlib import Path

import numpy as np
import pytest

from florets.commands.main import main
from tests.public_files import write_idx
from tests.reproduce_item import ITEM


def test_a_folder_that_is_not_there_is_refused_once_before_any_cell(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "item.yaml", "data_dir=nowhere"]) == 2
    assert capsys.readouterr().err.count("nowhere: there is no such folder") == 1
    assert not ran


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mnist", "no folder MNIST/raw/"),
    ],
)
def test_data_that_no_cell_can_have_are_refused_once_before_any_cell(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str], name: str, told: str
) -> None:
    assert main(["reproduce", "item.yaml", f"task.data={name}", "data_dir=."]) == 2
    assert capsys.readouterr().err.count(told) == 1
    assert not ran


def test_cells_without_data_are_left_out_and_the_others_run(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    item.write_text(ITEM.replace("overrides: [k=2, task", "overrides: [task.data=mnist, k=2, task"))
    assert main(["reproduce", "item.yaml", "columns=clove", "data_dir=."]) == 0
    assert capsys.readouterr().err.count("no folder MNIST/raw/") == 1
    assert ran == [("clove", 4, 0), ("clove", 4, 1), ("clove", 4, 2)]


@pytest.mark.parametrize(
    "options",
    [
        "{}",
    ],
)
def test_a_public_set_that_was_cut_short_is_told(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str], options: str
) -> None:
    for prefix, count in (("train", 40), ("t10k", 20)):
        write_idx(item.parent / "MNIST" / "raw", prefix, count, np.arange(count) % 10)
    item.write_text(ITEM.replace("overrides: [k=2, task", "overrides: [task.data=mnist, k=2, task"))
    given = ["columns=clove", "rows=two", "data_dir=.", f"task.data_options={options}"]
    assert main(["reproduce", "item.yaml", *given]) == 0
    assert "has 60 samples, the public set 70,000" in capsys.readouterr().err
    assert len(ran) == 1
