"""Pages of tables: of finished cells alone, whatever machine made them."""

from pathlib import Path

import pytest

from florets.commands.main import main

PAGE = """# Results

Text by hand.

<!-- reproduce item.yaml rows=four columns=clove measures=accuracy,right_k -->
an old table
<!-- end of reproduce -->

<!-- reproduce item.yaml scale=small num_rounds=9 -->
kept
<!-- end of reproduce -->
"""


def test_a_pages_tables_are_made_of_finished_cells_alone(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    page = item.parent / "page.md"
    page.write_text(PAGE)
    assert main(["reproduce", "item.yaml", "columns=clove"]) == 0
    ran.clear()
    for _ in range(2):
        assert main(["reproduce", "--results-page", "page.md"]) == 0
    assert not ran
    text = page.read_text()
    assert text.startswith("# Results\n\nText by hand.\n\n<!-- reproduce item.yaml rows=four")
    assert "an old table" not in text
    assert "`florets reproduce item.yaml rows=four columns=clove`: 3 cells: 3 finished." in text
    assert text.count("91.0 ± 1.0 (92.5 ± 0.4; off a) |") == 1
    words = " ".join(text.split())
    assert "| CLoVE & co | 2 of 3 |" in words
    assert "MB sent" not in words
    # What nobody has run keeps what stands there.
    assert "num_rounds=9 -->\nkept\n<!-- end of reproduce -->" in text
    assert "no cell is finished; left as it was" in capsys.readouterr().out


def test_cells_that_are_stored_beside_a_page_are_not_run_again(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    (item.parent / "page.md").write_text("<!-- reproduce item.yaml -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "item.yaml", "seeds=2"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    done = list(ran)
    ran.clear()
    elsewhere = ["item.yaml", "results_dir=elsewhere"]
    assert main(["reproduce", *elsewhere, "stored=page"]) == 0
    # The third seeds alone: of two methods on four rotations.
    assert sorted(ran) == [("clove", 4, 2), ("fedavg", 4, 2)]
    assert len(done) + len(ran) == 7
    (table,) = Path("elsewhere").rglob("table.md")
    assert "7 cells: 7 finished." in table.read_text()
    # Without the folder only what was run there counts; a page has its own.
    capsys.readouterr()
    assert main(["reproduce", *elsewhere, "--table"]) == 0
    assert "7 cells: 2 finished, 5 not run." in capsys.readouterr().out
    for words, rule in (
        (["item.yaml", "stored=nowhere"], "no such folder"),
        (["--list", "stored=nowhere"], "no such"),
    ):
        assert main(["reproduce", *words]) == 2
        assert f"stored=nowhere: there is {rule}" in capsys.readouterr().err
    (item.parent / "page.md").write_text("<!-- reproduce item.yaml stored=page -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "--results-page", "page.md"]) == 2
    assert "a page has stored cells of its own" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (["page.md"], PAGE.replace("<!-- end of reproduce -->", ""), "has no end; close it with"),
        (["page.md"], PAGE.replace("right_k", "loss_x"), "measures=loss_x: item has no such measure"),
        (["no.md"], PAGE, "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_page_is_named(
    item: Path,
    ran: list[tuple[str, int, int]],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    text: str,
    message: str,
) -> None:
    (item.parent / "page.md").write_text(text)
    assert main(["reproduce", "item.yaml", "columns=clove", "rows=four", "seeds=1"]) == 0
    assert main(["reproduce", "--results-page", *words]) == 2
    assert message in capsys.readouterr().err
    assert (item.parent / "page.md").read_text() == text
