"""`florets check`: findings about tables, each with its site and remedy; units; classes without training records."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import florets
from florets.commands import main
from florets.server_app.data_findings import Finding, _grouped, find
from florets.server_app.units import Conversion, Span, conversion, outside

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
    target = next((text for text in given if text.startswith("target=")), "target=ill")
    rest = [text for text in given if text != target]
    code = main.main(["check", f"data_dir={tmp_path / 'sites'}", target, f"results_dir={tmp_path}", *rest])
    (file,) = (tmp_path / "check").rglob("check.json")
    return code, json.loads(file.read_text(encoding="utf-8"))


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
        (
            lambda t: {name: np.append(values, values[:20]) for name, values in t.items()},
            "20 records equal an earlier one in all inputs and the target. Remove copies",
        ),
        (lambda t: {**t, "sex": np.where(t["sex"] == "F", "w", "m")}, "shares no category with the other sites"),
        (lambda t: {**t, "age": np.zeros_like(t["age"])}, 'missing_in = {age = ["0"]}'),
        (lambda t: {**t, "age": t["ill"] + 60}, "'age' has one value for each value of the target. If it follows"),
        (lambda t: {k: v[:12] for k, v in t.items()}, "12 records, too few"),
        (lambda t: {**t, "ill": np.where(np.arange(200) % 4, t["ill"].astype(str), "?")}, "50 of 200 records have"),
    ],
    ids=["unit", "one class", "copies", "words", "constant", "leak", "few", "no target"],
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
    found = check(tmp_path)[1]
    assert [one["level"] for one in found].count("error") == 1
    said_then = said(found, "error")["west"]
    assert "lacks 'chol'. Add it, or do without it at all sites, task.table.drop" in said_then
    (tmp_path / "sites" / "west" / "node.toml").write_text('rename = {serum_chol = "chol"}\n')
    (tmp_path / "sites" / "README.txt").write_text("Notes\n")
    assert check(tmp_path) == (0, [])


def test_an_error_of_several_sites_is_one_line_that_names_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(3):
        write(tmp_path / "sites", f"s{seed}", seed)
    code, (finding,) = check(tmp_path, "target=length")
    assert (code, finding["site"]) == (1, "s0, s1, s2")
    assert capsys.readouterr().out.count("has no column 'length'") == 1


@pytest.mark.parametrize("scale", [1.0, 255.0])
def test_float_images_of_another_range_at_one_site_are_named(tmp_path: Path, scale: float) -> None:
    rng = np.random.default_rng(0)
    images = [rng.random((20, 1, 8, 8)) * (scale if site == 3 else 1.0) for site in range(4)]
    found = florets.check([(x.astype("f4"), np.arange(20) % 2) for x in images], results_dir=tmp_path)
    assert found.findings["text"].str.contains("look like pixels of 0 to 255").any() == (scale > 1)


def test_the_first_lines_count_the_sites_that_take_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, name in enumerate(("a", "b", "c")):
        write(tmp_path / "sites", name, seed, change=lambda t: {k: v for k, v in t.items() if k != "chol"})
        if name != "c":
            (tmp_path / "sites" / name / "data.csv").unlink()
            (tmp_path / "sites" / name).rmdir()
            write(tmp_path / "sites", name, seed)
    keys = [f"data_dir={tmp_path / 'sites'}", "target=ill", f"results_dir={tmp_path}", "strategy=fedavg"]
    assert main.main([*keys, "num_rounds=1", "pictures=false"]) == 0
    assert "2 sites, 400 records: a (200), b (200)" in capsys.readouterr().err


def test_what_is_not_read_is_a_warning(tmp_path: Path) -> None:
    for seed in range(3):
        write(tmp_path / "sites", f"s{seed}", seed)
    (tmp_path / "sites" / "east.xlsx").write_bytes(b"PK")
    (tmp_path / "sites" / "west.csv").write_text("age,ill\n")
    (tmp_path / "sites" / "README.txt").write_text("Notes\n")
    code, findings = check(tmp_path)
    assert code == 0
    assert [f"{one['text']}. {one['remedy']}" for one in findings] == [
        "east.xlsx is not read. Save it as .csv.",
        "west.csv is not read. Move it into a folder of its own.",
    ]


def test_a_property_of_the_site_is_no_unit_and_few_records_send_nothing_that_is_equal(tmp_path: Path) -> None:
    for seed, n in enumerate((60, 200, 90, 5, 5)):

        def constant(table: dict[str, np.ndarray], n: int = n, beds: int = 10 * (seed + 1)) -> dict[str, np.ndarray]:
            return {"beds": np.full(n, beds), "ward": np.ones(n), "land": np.full(n, "NO"), **table}

        write(tmp_path / "sites", f"s{seed}", seed, n, constant)
    assert [one["text"] for one in check(tmp_path)[1] if not one["site"]] == [
        "'ward' is not used: it has one value in all records"
    ]


def test_a_row_of_totals_in_the_target_is_named(tmp_path: Path) -> None:
    def total(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {**table, "chol": np.where(np.arange(200) % 40, table["chol"], table["chol"].sum())}

    for seed in range(4):
        write(tmp_path / "sites", f"s{seed}", seed, change=total if seed == 2 else lambda table: table)
    found = said(check(tmp_path, "target=chol")[1], "warning")
    assert re.match(r"the spread of the target 'chol' is \d+ times that of the other sites. Look for", found["s2"])


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


@pytest.mark.parametrize("key", ["drop", "id", "categorical", "columns"])
def test_a_declared_column_that_no_site_has_is_refused(key: str, tmp_path: Path) -> None:
    for seed in range(2):
        write(tmp_path / "sites", f"s{seed}", seed)
    code, findings = check(tmp_path, f"task.table.{key}=[ages]")
    text = f"task.table.{key} names 'ages', and no site has such a column; correct it"
    assert (code, findings[0]["text"]) == (1, text)


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


def span(mean: float, deviation: float) -> Span:
    return mean - 1.28 * deviation, mean, mean + 1.28 * deviation


@pytest.mark.parametrize(
    ("usual", "own", "factor"),
    [
        ((230, 40), (230 / 38.67, 40 / 38.67), 1 / 38.67),
        ((170, 9), (66, 3.6), 1 / 2.54),
        ((1.0, 0.2), (90, 17), 88.42),
        ((62, 9), (760, 100), 12.0),
        # 37 degrees are 98.6: inches to cm would have a spread of 2.54 times.
        ((37, 0.5), (98.5, 0.9), 1.8),
        # As rounded percentiles show it.
        ((36.9, 0.69), (98.42, 1.42), 1.8),
        ((37, 0.5), (310.1, 0.5), 1.0),
        ((98.6, 0.9), (36.9, 0.5), 1 / 1.8),
    ],
    ids=["cholesterol", "inches", "creatinine", "months", "fahrenheit", "rounded", "kelvin", "celsius"],
)
def test_a_unit_is_a_known_conversion(usual: tuple[float, float], own: tuple[float, float], factor: float) -> None:
    spans = {name: span(usual[0] * shift, usual[1]) for name, shift in (("a", 0.98), ("b", 1.0), ("c", 1.02))}
    found = outside({**spans, "d": span(*own)})
    assert found.keys() == {"d"}
    known = conversion(span(*own), found["d"])
    assert known is not None
    assert known.factor == pytest.approx(factor)


def test_a_conversion_back_is_named_from_the_other_unit() -> None:
    texts = [
        "cholesterol, mmol/l to mg/dl",
        "degrees Celsius to Fahrenheit",
        "minutes to seconds, or hours to minutes",
    ]
    assert [Conversion(2.0, text).reverse.text for text in texts] == [
        "cholesterol, mg/dl to mmol/l",
        "degrees Fahrenheit to Celsius",
        "seconds to minutes, or minutes to hours",
    ]


def test_findings_of_several_clients_without_names_are_said_of_clients() -> None:
    assert [str(one) for one in find({}, None, dict.fromkeys("01", "x is odd"))] == ["clients 0, 1: x is odd"]
    of_two = [Finding("warning", site, f"x{column} is odd", "Look.") for column in range(6) for site in "01"]
    (found,) = _grouped(of_two)
    more = "and 5 more findings of this kind, in all at clients 0, 1"
    assert str(found) == f"clients 0, 1: x0 is odd; {more}. Look."


def test_persons_who_differ_leave_no_gap_and_two_units_among_many_do() -> None:
    rng = np.random.default_rng(0)
    persons = {key: span(level, 0.2 * level) for key, level in enumerate(np.exp(rng.normal(0, 0.6, 42)))}
    assert outside(persons) == {}
    # One is 12 times as high as the others' middle, and near the next.
    assert outside({**persons, "high": span(1.5 * max(mean for _, mean, _ in persons.values()), 0.3)}) == {}
    cm = {key: span(length, 8.0) for key, length in enumerate(rng.normal(170, 3, 30))}
    odd = {"inch": span(67.0, 3.1), "inch too": span(66.0, 3.2), "m": span(1.7, 0.08)}
    assert outside({**cm, **odd}).keys() == odd.keys()


def test_around_zero_the_fewer_sites_are_outside() -> None:
    usual = {"a": span(-0.4, 1.0), "b": span(-0.2, 1.0), "c": span(0.0, 1.0)}
    assert outside(usual) == {}
    assert outside({**usual, "d": span(-8.0, 0.4), "e": span(-8.5, 0.4)}).keys() == {"d", "e"}
    # Other means, and values in common.
    assert outside({**usual, "d": span(2.5, 2.0)}) == {}


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
