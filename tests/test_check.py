"""`florets check`: findings about sites' tables, each with its site and remedy, and none about clean ones."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import florets
from florets.commands import main
from florets.server_app.data_findings import find
from florets.task.data.tables.description import Description

Change = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]


def write(root: Path, name: str, seed: int, n: int = 200, change: Change = lambda table: table) -> None:
    """Write a hospital whose disease follows from age and cholesterol."""
    rng = np.random.default_rng(seed)
    age, dose = rng.normal(60, 9, n), rng.normal(230, 40, n)
    ill = ((age - 60) / 9 + (dose - 230) / 40 + rng.normal(0, 0.5, n) > 0).astype(int)
    sex = np.array(["F", "M"])[rng.integers(0, 2, n)]
    table = change({"age": age.round(1), "chol": dose.round(2), "sex": sex, "ill": ill})
    lines = [",".join(table), *(",".join(map(str, row)) for row in zip(*table.values(), strict=True))]
    (root / name).mkdir(parents=True)
    (root / name / "data.csv").write_text("\n".join(lines) + "\n")


def check(tmp_path: Path, *given: str) -> tuple[int, list[dict[str, str]]]:
    code = main.main(["check", f"data_dir={tmp_path / 'sites'}", "target=ill", f"results_dir={tmp_path}", *given])
    (page,) = (tmp_path / "check").rglob("check.html")
    assert "Findings" in page.read_text(encoding="utf-8")
    return code, json.loads(page.with_name("check.json").read_text(encoding="utf-8"))


def said(findings: list[dict[str, str]], level: str) -> dict[str, str]:
    return {one["site"]: f"{one['text']}. {one['remedy']}" for one in findings if one["level"] == level}


def test_clean_sites_of_other_sizes_and_shares_have_no_findings(tmp_path: Path) -> None:
    for seed, n in enumerate((60, 200, 500, 90)):
        write(tmp_path / "sites", f"s{seed}", seed, n)
    assert check(tmp_path) == (0, [])


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda t: {**t, "chol": (t["chol"] / 38.67).round(2)}, "<its name>.toml): scale = {chol = 38.67}"),
        (lambda t: {**t, "ill": np.ones_like(t["ill"])}, "has only one class (1)"),
        (lambda t: {**t, "sex": np.where(t["sex"] == "F", "w", "m")}, "shares no category with the other sites"),
        (lambda t: {**t, "age": np.zeros_like(t["age"])}, 'missing_in = {age = ["0"]}'),
        (lambda t: {k: np.concatenate([v, v[:60]]) for k, v in t.items()}, "equal an earlier one"),
        (lambda t: {**t, "age": t["ill"] + 60}, "'age' has one value for each value of the target. If it follows"),
        (lambda t: {k: v[:12] for k, v in t.items()}, "12 records, too few"),
        (lambda t: {**t, "ill": np.where(np.arange(200) % 4, t["ill"].astype(str), "?")}, "50 of 200 records have"),
    ],
    ids=["unit", "one class", "words", "constant", "copies", "leak", "few", "no target"],
)  # fmt: skip
def test_what_departs_is_named_with_its_remedy(change: Change, text: str, tmp_path: Path) -> None:
    for seed in range(4):
        write(tmp_path / "sites", f"s{seed}", seed)
    write(tmp_path / "sites", "west", 9, change=change)
    code, findings = check(tmp_path)
    assert code == 0
    assert text in said(findings, "warning")["west"]
    assert said(findings, "warning").keys() == {"west"}


def test_a_site_that_cannot_take_part_makes_the_command_fail(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path / "sites", f"s{seed}", seed)
    write(
        tmp_path / "sites",
        "west",
        9,
        change=lambda t: {("serum_chol" if k == "chol" else k): v for k, v in t.items()},
    )
    code, findings = check(tmp_path)
    assert code == 1
    assert 'rename = {serum_chol = "chol"}' in said(findings, "error")["west"]
    # Columns that the other sites have too are no other name of it.
    (tmp_path / "sites" / "west" / "node.toml").write_text('drop = ["serum_chol"]\n')
    said_then = said(check(tmp_path)[1], "error")["west"]
    assert "lacks 'chol'. Add it, or do without it at all sites, task.table.drop" in said_then
    (tmp_path / "sites" / "west" / "node.toml").write_text('rename = {serum_chol = "chol"}\n')
    (tmp_path / "sites" / "README.txt").write_text("Notes\n")
    assert check(tmp_path) == (0, [])


def test_what_is_not_read_and_what_is_there_twice_are_warnings(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path / "sites", f"s{seed}", seed)
    write(tmp_path / "sites", "copy", 0)
    (tmp_path / "sites" / "east.xlsx").write_bytes(b"PK")
    (tmp_path / "sites" / "west.csv").write_text("age,ill\n")
    (tmp_path / "sites" / "north").symlink_to("Nowhere")
    (tmp_path / "sites" / "README.txt").write_text("Notes\n")
    code, findings = check(tmp_path)
    assert code == 0
    assert [f"{one['text']}. {one['remedy']}" for one in findings] == [
        "east.xlsx is not read. Save it as .csv.",
        "north is not read. It is a link to Nowhere, which does not exist: correct or remove it.",
        "west.csv is not read. Move it into a folder of its own.",
        "'copy', 's0' have equal data. If one is a copy, remove it: it counts twice, and its records are tested on "
        "where they are trained on.",
    ]


def test_a_property_of_the_site_has_several_values_and_few_records_send_nothing_that_is_equal(tmp_path: Path) -> None:
    for seed, n in enumerate((60, 200, 90, 5, 5)):

        def constant(table: dict[str, np.ndarray], n: int = n, beds: int = 10 * (seed + 1)) -> dict[str, np.ndarray]:
            return {"beds": np.full(n, beds), "ward": np.ones(n), "land": np.full(n, "NO"), **table}

        write(tmp_path / "sites", f"s{seed}", seed, n, constant)
    texts = [one["text"] for one in check(tmp_path)[1] if not one["site"]]
    assert texts == [
        "'ward' is not used: it has one value in all records",
        "'beds' has one value at each site: it is a property of the site",
        "'land' has one value at all sites: it predicts nothing",
    ]


def test_codes_for_missing_values_are_named_with_their_sites_and_the_remedy_ends_the_warning(tmp_path: Path) -> None:
    def coded(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {**table, "age": np.where(np.arange(200) % 20 == 0, -999, table["age"])}

    for seed in range(3):
        write(tmp_path / "sites", f"s{seed}", seed, change=coded if seed else lambda table: table)
    (finding,) = check(tmp_path)[1]
    assert finding["text"] == "'age' is \"-999\" in 20 records of 's1', 's2', far outside its other values"
    line = re.search(r"missing_in = .*(?=\.$)", finding["remedy"])
    for name in ("s1", "s2"):
        (tmp_path / "sites" / name / "node.toml").write_text(line[0] if line else "")
    assert check(tmp_path) == (0, [])


def test_nines_among_few_classes_may_mark_missing_values(tmp_path: Path) -> None:
    marks = {"s0": 9, "s1": -99, "s2": 2}
    for seed, (name, mark) in enumerate(marks.items()):

        def change(table: dict[str, np.ndarray], mark: int = mark) -> dict[str, np.ndarray]:
            return {**table, "sick": np.where(np.arange(200) % 20 == 0, mark, np.arange(200) % 2)}

        write(tmp_path / "sites", name, seed, change=change)
    texts = [one["text"] for one in check(tmp_path)[1]]
    assert [text for text in texts if "far outside" in text] == [
        "'sick' is \"9\" in 10 records of 's0', far outside its other values",
        "'sick' is \"-99\" in 10 records of 's1', far outside its other values",
    ]


def test_equal_arrays_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    clients = [(np.random.default_rng(seed).normal(size=(40, 2)), np.arange(40) % 2) for seed in (0, 1, 0)]
    (text,) = florets.check(clients).findings["text"]
    assert text == "'0', '2' have equal data"


@pytest.mark.parametrize("key", ["drop", "id", "categorical", "columns"])
def test_a_declared_column_that_no_site_has_is_refused(key: str, tmp_path: Path) -> None:
    for seed in range(2):
        write(tmp_path / "sites", f"s{seed}", seed)
    code, findings = check(tmp_path, f"task.table.{key}=[ages]")
    text = f"task.table.{key} names 'ages', and no site has such a column; correct it"
    assert (code, findings[0]["text"]) == (1, text)


def test_one_site_is_checked_alone_before_it_joins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "sites", 0)
    assert check(tmp_path) == (0, [])
    assert "1 site, 200 records: sites (200)" in capsys.readouterr().out


def test_where_half_of_the_sites_depart_neither_half_is_wrong(tmp_path: Path) -> None:
    for seed in range(6):
        inches = {"change": lambda t: {**t, "chol": (t["chol"] / 38.67).round(2)}} if seed % 2 else {}
        write(tmp_path / "sites", f"s{seed}", seed, **inches)
    (finding,) = check(tmp_path)[1]
    assert finding["site"] == ""
    assert finding["text"].endswith("'s1', 's3', 's5' against 's0', 's2', 's4'")
    assert "Agree on one unit" in finding["remedy"]


def test_arrays_far_from_a_standard_scale_are_a_warning_with_its_remedy() -> None:
    plain = Description("archive", 90, 80, shape=(3,), classes=("0", "1"))
    raw = Description("archive", 90, 80, shape=(3,), classes=("0", "1"), scale="raw")
    assert find({"a": plain, "b": plain}, None, {}) == []
    values = Description("archive", 90, 80, shape=(3,), target_scale="raw")
    (of_targets,) = find({"a": values}, None, {})
    assert of_targets.text.startswith("the arrays' targets are far from a standard scale")
    (some,) = find({"a": plain, "b": raw}, None, {})
    assert (some.level, some.text.endswith("('b')")) == ("warning", True)
    assert some.remedy.startswith("Give them as floating numbers, which are standardised (task.table.standardise=")


def test_a_site_that_keeps_its_statistics_is_described_without_figures(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path / "sites", f"s{seed}", seed)
    (tmp_path / "sites" / "s1" / "node.toml").write_text("share-statistics = false\n")
    check(tmp_path)
    (path,) = (tmp_path / "check").rglob("description.json")
    described = json.loads(path.read_text(encoding="utf-8"))
    assert [any(column.get("quantiles") for column in described[key]["columns"]) for key in ("s0", "s1", "s2")] == [
        True, False, True
    ]  # fmt: skip
