"""Agreement of sites from their descriptions: pooled figures, columns by majority, ids, classes and conflicts."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from florets.server_app.data_agreement import lines
from florets.server_app.data_findings import find
from florets.task.data.tables.agreement import Agreed, agree
from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.describe import describe_table
from florets.task.data.tables.description import Description
from florets.task.data.tables.read import Table

TARGET = Declaration(target="y")


def site(frame: pd.DataFrame, declared: Declaration = TARGET) -> Description:
    return describe_table(Table(frame), declared, np.arange(len(frame)))


def frame(n: int, seed: int = 0, names: Sequence[str] = ("a", "b", "c"), **more) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    values = {name: rng.normal(size=n).round(3) for name in names}
    return pd.DataFrame(
        {**values, **{name: pd.Series(column) for name, column in more.items()}, "y": ["0", "1"] * (n // 2)}
    )


def agreed(declared: Declaration = TARGET, **sites: pd.DataFrame) -> Agreed:
    return agree(declared, {name: site(table, declared) for name, table in sites.items()})


def test_pooled_figures_are_those_of_the_joined_records() -> None:
    rng = np.random.default_rng(0)
    tables = {}
    for name, n, shift in (("north", 500, 1e6), ("south", 40, 1e6 + 5), ("east", 6, 1e6 - 20)):
        a = rng.normal(shift, 3, n)
        b = np.where(rng.random(n) < 0.2, np.nan, rng.exponential(2, n))
        word = rng.choice(["x", "y", "z", None], n, p=[0.5, 0.3, 0.1, 0.1]).astype(object)
        tables[name] = pd.DataFrame({"a": a, "b": b, "word": word, "y": rng.normal(shift, 2, n)})
    joined = pd.concat(tables.values())
    found = agreed(Declaration(target="y", min_count=1), **tables).preprocessing
    assert found is not None
    for column in found.numeric:
        np.testing.assert_allclose(column.mean, joined[column.name].mean(), rtol=1e-12)
        np.testing.assert_allclose(column.std, joined[column.name].std(ddof=0), rtol=1e-9)
        assert column.indicator is bool(joined[column.name].isna().any())
    (word,) = found.categorical
    assert word.categories == ("x", "y", "z")
    assert word.mode == joined["word"].mode()[0]
    assert (word.indicator, word.other) == (True, False)
    np.testing.assert_allclose([found.target_mean, found.target_std], [joined["y"].mean(), joined["y"].std(ddof=0)])


def test_a_category_in_few_records_is_another_one_unless_a_site_names_it() -> None:
    counted = ["x"] * 20 + ["rare"] * 4 + ["seen"] * 4 + ["z"] * 12
    named = ["x"] * 20 + ["seen"] * 20
    found = agreed(a=frame(40, word=counted), b=frame(40, 1, word=named)).preprocessing
    assert found is not None
    (word,) = found.categorical
    assert (word.categories, word.other) == (("seen", "x", "z"), True)
    # A site of few records names nothing, and has no more words than the others have named.
    few = agreed(a=frame(40, word=named), small=frame(8, word=["x", "seen"] * 4)).preprocessing
    assert few is not None
    assert few.categorical[0].shown == ("x",)
    assert not few.categorical[0].other


def test_ids_and_dates_are_no_inputs_and_repeated_ids_keep_records_together() -> None:
    visits = {
        "patient_id": [float(100 + n // 3) for n in range(60)],
        "visit_id": [float(5000 + n * 7 % 997) for n in range(60)],
        "seen": [f"2024-01-{1 + n % 28:02}" for n in range(60)],
    }
    found = agreed(
        a=frame(60, **visits), b=frame(60, 1, **visits), small=frame(6, 2, **{k: v[:6] for k, v in visits.items()})
    )
    assert found.preprocessing is not None
    assert found.preprocessing.columns == ("a", "b", "c")
    assert found.group == "patient_id"
    assert found.preprocessing.ids == ("patient_id", "visit_id")
    kept = agreed(Declaration(target="y", columns=("a", "patient_id")), a=frame(60, **visits)).preprocessing
    assert kept is not None
    assert kept.columns == ("a", "patient_id")


def test_constant_and_empty_columns_are_not_used() -> None:
    more = {"one": [2.0] * 30, "none": [math.nan] * 30, "word": ["x"] * 30, "some": [1.0] * 20 + [math.nan] * 10}
    found = agreed(a=frame(30, **more), b=frame(30, 1, **more))
    assert found.preprocessing is not None
    assert found.preprocessing.columns == ("a", "b", "c", "some")
    assert found.preprocessing.width == 5
    assert sum("is not used" in note for note in found.notes) == 3
    # Constant at one site alone.
    assert "one" in agreed(a=frame(30, **more), b=frame(30, one=[3.0] * 30)).preprocessing.columns  # type: ignore[union-attr]


def marked(cells: Sequence[str], n: int = 40) -> pd.DataFrame:
    return frame(n, m=[cells[place % len(cells)] for place in range(n)])


@pytest.mark.parametrize(
    "cell", ["{} 120", "{}'120", "${},120", "{}%", "{} mg/dl", "01:{}", "120/{}", "\u2212{}", "<{}"]
)
def test_numbers_with_a_mark_are_no_ids(cell: str) -> None:
    cells = [cell.format(number) for number in range(10, 50)]
    for found in (
        agreed(a=marked(cells), b=marked(cells[::-1])),
        agreed(Declaration(target="y", columns=("a", "m")), a=marked(cells)),
    ):
        (warning,) = found.warnings
        assert warning.startswith("'m' is not used as an input: its cells are not plain numbers: they hold blanks")
    with pytest.raises(ValueError, match="the target 'y': its cells are not plain numbers: they hold blanks"):
        agreed(a=frame(40).assign(y=cells))
    # At one site of three it is the site that differs; two sites do without the column.
    plain = frame(40, m=[number / 2 for number in range(40)])
    found = agreed(a=marked(cells), b=plain, c=plain)
    assert "are not plain numbers" in found.left_out["a"]
    assert "its cells at 'b' are not plain numbers" in agreed(a=plain, b=marked(cells)).warnings[0]


@pytest.mark.parametrize(
    "cells",
    [
        [f"A{number:05d}" for number in range(40)],
        [f"{number:08x}-41d4" for number in range(2**24, 2**24 + 40)],
        [f"Smith {'abcdefghij'[number % 10]}{'klmn'[number // 10]}" for number in range(40)],
    ],
)
def test_real_ids_are_still_ids(cells: list[str]) -> None:
    found = agreed(a=marked(cells), b=marked(cells[::-1]))
    assert found.warnings == ()
    assert any("'m' is not used as an input: it looks like an id" in note for note in found.notes)


@pytest.mark.parametrize("numbers", [1, 2])
def test_integers_are_categories_where_another_site_has_a_range_among_them(numbers: int) -> None:
    opened = {str(place): marked(["0", "1", "2", "3+"]) for place in range(3 - numbers)}
    plain = {f"n{place}": frame(40, m=[float(number % 3) for number in range(40)]) for place in range(numbers)}
    found = agreed(**opened, **plain)
    assert found.left_out == {}
    assert found.preprocessing is not None
    assert found.preprocessing.categorical[0].categories == ("0", "1", "2", "3+")
    assert found.preprocessing.inputs(plain["n0"]).x[:3, 3:].tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    (note,) = (note for note in found.notes if "'m'" in note)
    assert note == "'m' has few different values, numbers and words ('3+'): categories"


@pytest.mark.parametrize(
    ("y", "why"),
    [
        (list(range(10)) * 4, "since it has 10 different integers; for an amount, task.table.regression=true"),
        (range(40), "since it has more than 10 different integers; for classes, task.table.regression=false"),
        ([n / 2 for n in range(40)], "since it has fractions; for classes, task.table.regression=false"),
        ([n % 2 for n in range(40)], ""),
    ],
)  # fmt: skip
def test_what_the_target_was_taken_for_has_a_reason_and_the_key_for_the_other(y: list, why: str) -> None:
    sites = {key: site(frame(40).assign(y=pd.Series(y))) for key in "ab"}
    found = agree(TARGET, sites)
    assert found.target_why == why
    (line,) = (line for line in lines(sites, found) if line.startswith("target: y"))
    assert line.endswith(why)
    assert agree(replace(TARGET, regression=found.is_regression), sites).target_why == ""


def test_a_site_with_another_last_column_is_named_with_it() -> None:
    other = frame(30)[["a", "b", "y", "c"]]
    found = agreed(Declaration(), a=frame(30), b=frame(30), c=other)
    assert found.left_out == {
        "c": "has 'c' as its last column, the other sites 'y', and no target is named: give target=<column>"
    }


def test_a_class_that_a_guessed_encoding_has_alone_leaves_its_site_out() -> None:
    garbled = "żółty".encode("cp1250").decode("cp1252")

    def with_word(word: str, column: str, guessed: bool) -> Description:
        return replace(site(frame(40, m=["x", "z"] * 20).assign(**{column: [word, "red"] * 20})), guessed=guessed)

    right = {key: with_word("żółty", "y", False) for key in "bc"}
    found = agree(TARGET, {"a": with_word(garbled, "y", True), **right})
    assert found.classes == ("red", "żółty")
    assert found.left_out["a"].startswith(
        f"has a class of the target with letters that no other site has ('{garbled}')"
    )
    assert 'encoding = "cp1250"' in found.left_out["a"]
    # A garbled name is no reason to rename the column.
    whole = site(frame(40, größe=[1.5, 2, 7, 9] * 10))
    named = {"a": replace(site(frame(40, gršße=[1.5, 2, 7, 9] * 10)), guessed=True), "b": whole, "c": whole}
    assert "; name its encoding" in agree(TARGET, named).left_out["a"]
    # A file whose encoding is declared is right.
    assert agree(TARGET, {"a": with_word(garbled, "y", False), **right}).left_out == {}
    sites = {"a": with_word(garbled, "m", True), **{key: with_word("żółty", "m", False) for key in "bc"}}
    (warning,) = (one for one in find(sites, agree(TARGET, sites), {}) if one.level == "warning" and one.site == "a")
    assert "was read as cp1252. Name its encoding" in str(warning)


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (([0.0, 1.0] * 15, [1.0] * 30), ("0", "1")),
        (([0.0, 10.0, 2.0] * 10, [1.0] * 30), ("0", "1", "2", "10")),
        ((["0.0", "1.0"] * 15, ["0", "1"] * 15), ("0", "1")),
        (([float(n) for n in range(30)], [1.0, 2.0] * 15), ()),
        (([0.5, 1.0] * 15, [1.0, 2.0] * 15), ()),
    ],
)
def test_classes_or_a_regression_follow_from_the_targets(targets: tuple, expected: tuple[str, ...]) -> None:
    sites = {str(place): frame(30, place).assign(y=pd.Series(values)) for place, values in enumerate(targets)}
    found = agreed(**sites)
    assert (found.classes, found.is_regression) == (expected, not expected)
    assert found.num_outputs == max(len(expected), 1)


@pytest.mark.parametrize(
    ("declared", "tables", "message"),
    [
        (Declaration(), [frame(30), frame(30).rename(columns={"y": "z"})], "last columns differ .*give target"),
        (TARGET, [frame(60).assign(y=[f"w{n}" for n in range(60)])], "seems to hold ids: name another one"),
        (TARGET, [frame(30, names=("a",), a=[1.0] * 30)], r"no column is left .*one value in all records"),
        (TARGET, [frame(4)], "no site has enough values.*min_count"),
    ],
)
def test_what_cannot_be_agreed_on_is_refused_with_the_remedy(
    declared: Declaration, tables: list, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        agreed(declared, **{str(place): table for place, table in enumerate(tables)})


def site_of(y: Sequence, seed: int = 0, declared: Declaration = TARGET, **more: Sequence) -> Description:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(50, 10, len(y)), "b": rng.normal(size=len(y)), **more, "y": y})
    return describe_table(Table(frame), declared, np.arange(len(y)))


def agreed_of(declared: Declaration = TARGET, **targets: Sequence) -> Agreed:
    return agree(declared, {key: site_of(y, seed, declared) for seed, (key, y) in enumerate(targets.items())})


def test_a_site_without_a_class_of_the_others_is_left_out_unless_classes_are_named() -> None:
    sites = {"a": [0.0, 1.0] * 20, "b": [0.0, 1.0] * 20, "c": ["no", "yes"] * 20}
    found = agreed_of(**sites)
    assert found.classes == ("0", "1")
    assert found.left_out == {
        "c": "shares no class of the target with the other sites: 'no', 'yes' here, '0', '1' there; use the "
        "same names, or give the cells of each class, task.table.classes"
    }
    named = Declaration.of({"target": "y", "classes": {"no": ["0", "no"], "yes": ["1", "yes"]}})
    assert not agreed_of(named, **sites).left_out
    written = agreed_of(a=["no", "yes"] * 20, b=["no", "yes"] * 20, c=["No", "Yes"] * 20)
    assert "('No' and 'no' differ in case or blanks alone)" in written.left_out["c"]


def test_two_sites_without_a_common_class_are_not_joined_by_guessing() -> None:
    for one, other in ((["0", "1"], ["no", "yes"]), (["no", "yes"], ["No", "Yes"])):
        with pytest.raises(ValueError, match=r"the sites share no class of the target: .*task\.table\.classes"):
            agreed_of(a=one * 20, b=other * 20)


def test_a_form_of_data_that_few_sites_have_costs_them_their_place() -> None:
    tables = {key: site_of(["0", "1"] * 20, seed) for seed, key in enumerate("abc")}
    archive = Description("archive", 50, 40, shape=(7,), classes=("0", "1"))
    found = agree(TARGET, {**tables, "z": archive})
    assert found.preprocessing is not None
    assert (found.num_outputs, found.left_out.keys()) == (2, {"z"})
    images = Description("images", 50, 40, shape=(7,), classes=("cat", "dog"))
    values = Description("archive", 50, 40, shape=(7,))
    found = agree(Declaration(), {"a": archive, "b": archive, "c": archive, "d": images, "e": values})
    assert (found.num_outputs, found.classes, found.is_regression) == (2, (), False)
    assert found.left_out == {
        "d": "has folders of classes as targets, and most sites have numbers of classes; give it the same form",
        "e": "has values as targets, and most sites have numbers of classes; give it the same form",
    }
    with pytest.raises(ValueError, match="some sites have folders of images, others numbers"):
        agree(Declaration(), {"a": archive, "d": images})


def test_one_cell_does_not_set_the_scale_of_all() -> None:
    sites = {key: site_of(["0", "1"] * 50, seed) for seed, key in enumerate(("east", "south", "west"))}
    ages = np.random.default_rng(9).normal(50, 10, 100)
    ages[0] = 5e12
    sites["north"] = site_of(["0", "1"] * 50, 3, a=ages)
    found = agree(TARGET, sites)
    assert found.preprocessing is not None
    (a, _) = found.preprocessing.numeric
    assert abs(a.mean - 50) < 3
    assert 8 < a.std < 12
    warned = [str(one) for one in find(sites, found, {}) if one.level == "warning"]
    assert [text.split(".")[0] for text in warned] == [
        "north: the mean or the spread of 'a' is more than 1000 times that of the other sites"
    ]


def test_a_site_that_claims_very_many_records_has_the_weight_of_1000_median_ones() -> None:
    claimed = {}
    for key, n, mean in (("a", 10, 0.0), ("b", 10, 0.0), ("c", 10**9, 1.0)):
        plain = site_of(["0", "1"] * 20)
        column = plain.columns[0].__class__("a", "numeric", "input", n, 0, n, mean=mean, m2=float(n))
        claimed[key] = plain.__class__("table", n, n, columns=(column,), target=plain.target)
    found = agree(TARGET, claimed).preprocessing
    assert found is not None
    np.testing.assert_allclose(found.numeric[0].mean, 10_000 / 10_020)
