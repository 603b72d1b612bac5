"""Pages of tables: of finished cells alone, whatever machine made them."""

import shutil
from pathlib import Path

import pytest

from florets.commands.main import main
from tests.reproduce_item import ITEM

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
    assert text.count("| 4 rotations | 91.0 ± 1.0 |") == 1
    words = " ".join(text.split())
    assert "| 4 rotations | 2 of 3 |" in words
    assert "MB sent" not in words
    assert "| 92.5 ± 0.4 | 91.0 ± 1.0 | -1.5 |" in words
    # What nobody has run keeps what stands there.
    assert "num_rounds=9 -->\nkept\n<!-- end of reproduce -->" in text
    assert "no cell is finished; left as it was" in capsys.readouterr().out


def test_a_page_gives_no_method_the_runs_of_another(item: Path, ran: list[tuple[str, int, int]]) -> None:
    page = item.parent / "page.md"
    page.write_text("<!-- reproduce item.yaml rows=four measures=accuracy -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "item.yaml", "columns=clove"]) == 0
    for _ in range(2):
        assert main(["reproduce", "--results-page", "page.md"]) == 0
    assert "| 4 rotations | 91.0 ± 1.0 | not run |" in " ".join(page.read_text().split())
    assert main(["reproduce", "item.yaml", "columns=fedavg", "stored=page", "results_dir=elsewhere"]) == 0
    assert {strategy for strategy, _, _ in ran} == {"clove", "fedavg"}


def test_a_page_tells_once_in_what_an_item_is_not_the_papers(item: Path, ran: list[tuple[str, int, int]]) -> None:
    item.write_text(ITEM.replace("seeds: 3", "about: Of 20 rounds, where the paper has 5.\nseeds: 3"))
    page = item.parent / "page.md"
    block = "<!-- reproduce item.yaml measures={} -->\n<!-- end of reproduce -->\n"
    page.write_text(block.format("accuracy") + block.format("right_k"))
    assert main(["reproduce", "item.yaml", "columns=clove"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    text = page.read_text()
    assert text.count("Of 20 rounds, where the paper has 5.") == 1
    assert text.index("Of 20 rounds") < text.index("Accuracy in %:") < text.index("Right number of groups")


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


@pytest.mark.parametrize("key", ["results_di=results", "batch_clients=auto", "seeds=1"])
def test_a_key_after_a_pages_name_that_makes_another_table_is_refused_and_costs_no_stored_cell(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str], key: str
) -> None:
    page = item.parent / "page.md"
    page.write_text("<!-- reproduce item.yaml -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "item.yaml", "columns=clove"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    before = {path.name: path.read_bytes() for path in [page, *(item.parent / "page").iterdir()]}
    assert main(["reproduce", "--results-page", "page.md", key]) == 2
    assert f"{key}: only data_dir and results_dir may follow a page's name." in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in [page, *(item.parent / "page").iterdir()]} == before


def test_stored_cells_outlive_an_edit_of_their_item(item: Path, ran: list[tuple[str, int, int]]) -> None:
    page = item.parent / "page.md"
    page.write_text("<!-- reproduce item.yaml -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "item.yaml"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    first = page.read_text()
    item.write_text(ITEM.replace("num_rounds=2", "num_rounds=3"))
    assert main(["reproduce", "--results-page", "page.md", "results_dir=none"]) == 0
    item.write_text(ITEM)
    page.write_text("<!-- reproduce item.yaml -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "--results-page", "page.md", "results_dir=none"]) == 0
    assert page.read_text() == first


def test_a_block_shows_the_seeds_that_it_asks_for(item: Path, ran: list[tuple[str, int, int]]) -> None:
    (item.parent / "page.md").write_text("<!-- reproduce item.yaml seeds=1 -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "item.yaml"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    assert "`florets reproduce item.yaml seeds=1`: 3 cells: 3 finished." in (item.parent / "page.md").read_text()


def test_two_files_of_one_name_are_not_one_item_of_a_page(item: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("a", "b"):
        (item.parent / folder).mkdir()
        (item.parent / folder / "item.yaml").write_text(ITEM)
    blocks = "".join(f"<!-- reproduce {name}/item.yaml -->\n<!-- end of reproduce -->\n\n" for name in "ab")
    (item.parent / "page.md").write_text(blocks)
    assert main(["reproduce", "--results-page", "page.md"]) == 2
    assert "line 4, <!-- reproduce b/item.yaml -->: b/item.yaml: a/item.yaml has the same name" in (
        capsys.readouterr().err
    )


@pytest.mark.pictures
def test_a_pages_plot_is_drawn_where_its_runs_are_and_kept_where_not(
    item: Path, ran: list[tuple[str, int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    page, picture = item.parent / "page.md", item.parent / "page" / "item_paper.png"
    page.write_text("<!-- reproduce item.yaml rows=four columns=clove plot=yes -->\n<!-- end of reproduce -->\n")
    assert main(["reproduce", "item.yaml", "columns=clove", "seeds=2"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    text = page.read_text()
    assert "|\n\n![Two methods on turned digits](page/item_paper.png)\n\n<!-- end of reproduce -->" in text
    first = picture.read_bytes()
    assert first.startswith(b"\x89PNG")
    assert main(["reproduce", "item.yaml", "columns=clove", "rows=four"]) == 0
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    assert picture.read_bytes() != first
    # Pictures of other rows are gone, and a page that is refused keeps its pictures.
    (picture.parent / "item_paper-two.png").write_bytes(b"old")
    assert main(["reproduce", "--results-page", "page.md"]) == 0
    assert [path.name for path in picture.parent.glob("*.png")] == ["item_paper.png"]
    text, last = page.read_text(), picture.read_bytes()
    page.write_text(text.replace("plot=yes", "measures=loss_x plot=yes"))
    picture.write_bytes(b"kept")
    assert main(["reproduce", "--results-page", "page.md"]) == 2
    assert picture.read_bytes() == b"kept"
    page.write_text(text)
    picture.write_bytes(last)
    # Without the runs, or with some alone, the page and its picture are those of before.
    shutil.rmtree(next((item.parent / "results").glob("**/seed-1")))
    for results_dir in ("results", "none"):
        assert main(["reproduce", "--results-page", "page.md", f"results_dir={results_dir}"]) == 0
        assert (page.read_text(), picture.read_bytes()) == (text, last)
    assert "its plot is that of before, as the folder of no run is here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (["page.md"], PAGE.replace("measures=", "plot=no measures="), "plot=no: must be yes, or left out"),
        (
            ["page.md"],
            PAGE.replace("measures=", "layout=rows measures="),
            "layout=rows: must be methods, or left out",
        ),
        (
            ["page.md"],
            2 * PAGE.replace("measures=", "plot=yes measures="),
            "item_paper has its pictures in a block above",
        ),
        (["page.md"], PAGE.replace("<!-- end of reproduce -->", ""), "has no end; close it with"),
        (["page.md"], PAGE.replace("end of reproduce", "end of reproduec"), "no such block. Did you mean reproduce?"),
        (["page.md"], PAGE.replace("<!-- reproduce", "<!-- reproduc"), "no such block. Did you mean reproduce?"),
        (["page.md"], PAGE.replace("right_k", "loss_x"), "measures=loss_x: item has no such measure"),
        (["page.md"], PAGE.replace("rows=four", "rows=five"), "rows=five: item has no such row"),
        (["no.md"], PAGE, "cannot be read"),
        ([], PAGE, "name one page"),
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
