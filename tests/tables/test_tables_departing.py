"""Sites that differ from the others in form, target, classes or scale: each costs its own place and no more."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest

from florets.server_app.data_findings import find
from florets.task.data.tables.agreement import Agreed, agree, natural_order
from florets.task.data.tables.declaration import Declaration
from florets.task.data.tables.describe import describe_table
from florets.task.data.tables.description import Description
from florets.task.data.tables.read import Table

TARGET = Declaration(target="y")


def site(y: Sequence, seed: int = 0, declared: Declaration = TARGET, **more: Sequence) -> Description:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"a": rng.normal(50, 10, len(y)), "b": rng.normal(size=len(y)), **more, "y": y})
    return describe_table(Table(frame), declared, np.arange(len(y)))


def agreed(declared: Declaration = TARGET, **targets: Sequence) -> Agreed:
    return agree(declared, {key: site(y, seed, declared) for seed, (key, y) in enumerate(targets.items())})


@pytest.mark.parametrize("regression", [None, True])
def test_words_among_the_values_of_a_target_cost_their_site_alone(regression: bool | None) -> None:
    values = [float(n % 100) for n in range(300)]
    words = [str(n % 40) for n in range(298)] + ["absent"] * 2
    found = agreed(Declaration(target="y", regression=regression), a=values, b=values, c=words)
    assert found.is_regression
    assert found.left_out.keys() == {"c"}
    assert found.left_out["c"].startswith("has words in the target, where the other sites have numbers; ")


def test_values_among_the_classes_of_a_target_cost_their_site_alone() -> None:
    codes = [0.0, 1.0] * 20
    found = agreed(a=codes, b=codes, c=[0.5 + n for n in range(40)])
    assert (found.classes, found.left_out.keys()) == (("0", "1"), {"c"})


def test_a_site_without_a_class_of_the_others_is_left_out_unless_classes_are_named() -> None:
    sites = {"a": [0.0, 1.0] * 20, "b": [0.0, 1.0] * 20, "c": ["no", "yes"] * 20}
    found = agreed(**sites)
    assert found.classes == ("0", "1")
    assert found.left_out == {
        "c": "shares no class of the target with the other sites: 'no', 'yes' here, '0', '1' there; use the "
        "same names, or give the cells of each class, task.table.classes"
    }
    named = Declaration.of({"target": "y", "classes": {"no": ["0", "no"], "yes": ["1", "yes"]}})
    assert not agreed(named, **sites).left_out
    written = agreed(a=["no", "yes"] * 20, b=["no", "yes"] * 20, c=["No", "Yes"] * 20)
    assert "('No' and 'no' differ in case or blanks alone)" in written.left_out["c"]


def test_a_further_class_of_one_site_is_noted() -> None:
    found = agreed(a=["no", "yes"] * 20, b=["no", "yes"] * 20, c=["no", "unknown"] * 20)
    assert (found.classes, found.left_out) == (("no", "unknown", "yes"), {})
    assert "the class 'unknown' of the target is at c alone" in found.notes


def test_two_sites_without_a_common_class_are_not_joined_by_guessing() -> None:
    for one, other in ((["0", "1"], ["no", "yes"]), (["no", "yes"], ["No", "Yes"])):
        with pytest.raises(ValueError, match=r"the sites share no class of the target: .*task\.table\.classes"):
            agreed(a=one * 20, b=other * 20)


def test_a_class_that_is_rare_at_one_site_is_used_where_another_names_it() -> None:
    found = agreed(a=["no", "yes"] * 20, b=["no"] * 37 + ["yes"] * 3)
    assert (found.classes, found.left_out) == (("no", "yes"), {})
    third = agreed(a=["no", "yes"] * 20, b=["no", "yes"] * 18 + ["secret"] * 4)
    assert third.left_out.keys() == {"b"}
    assert "secret" not in third.left_out["b"]
    with pytest.raises(ValueError, match=r"one class at all sites.*name its rare classes, task\.table\.classes"):
        agreed(b=["no"] * 37 + ["yes"] * 3)


def test_a_form_of_data_that_few_sites_have_costs_them_their_place() -> None:
    tables = {key: site(["0", "1"] * 20, seed) for seed, key in enumerate("abc")}
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


def test_folders_of_classes_that_only_one_site_has_are_not_added_in_silence() -> None:
    def images(*classes: str) -> Description:
        return Description("images", 50, 40, shape=(3, 8, 8), classes=classes)

    sites = {"a": images("cat", "dog"), "b": images("cat"), "c": images("Cat", "Dog")}
    found = agree(Declaration(), sites)
    assert (found.classes, found.num_outputs, found.left_out.keys()) == (("cat", "dog"), 2, {"c"})
    assert "('Cat' and 'cat' differ in case or blanks alone)" in found.left_out["c"]
    assert agree(Declaration(), {"a": images("cat"), "b": images("dog")}).classes == ("cat", "dog")


def test_one_cell_does_not_set_the_scale_of_all() -> None:
    sites = {key: site(["0", "1"] * 50, seed) for seed, key in enumerate(("east", "south", "west"))}
    ages = np.random.default_rng(9).normal(50, 10, 100)
    ages[0] = 5e12
    sites["north"] = site(["0", "1"] * 50, 3, a=ages)
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
        plain = site(["0", "1"] * 20)
        column = plain.columns[0].__class__("a", "numeric", "input", n, 0, n, mean=mean, m2=float(n))
        claimed[key] = plain.__class__("table", n, n, columns=(column,), target=plain.target)
    found = agree(TARGET, claimed).preprocessing
    assert found is not None
    np.testing.assert_allclose(found.numeric[0].mean, 10_000 / 10_020)


def test_a_scale_that_a_site_keeps_to_itself_is_no_site_scale() -> None:
    declared = Declaration(target="y", standardise="site")
    own = site(["0", "1"] * 20, 0, declared)
    found = agree(declared, {"a": own, "silent": own.without_figures()}).preprocessing
    assert found is not None
    assert found.sites.keys() == {"a"}


def test_the_remedy_of_a_renamed_column_is_toml() -> None:
    names = {"a": [1.0] * 40, 'serum "chol"': [float(n * n % 17) for n in range(40)]}
    other = {"serum chol": [float(n * n % 19) for n in range(40)]}
    sites = {"x": site(["0", "1"] * 20, **names), "y": site(["0", "1"] * 20, 1, **names)}
    reason = agree(TARGET, {**sites, "z": site(["0", "1"] * 20, 2, **other)}).left_out["z"]
    assert reason.endswith(r"""rename = {"serum chol" = "serum \"chol\""}""")


def test_names_of_classes_have_one_order() -> None:
    names = ["nan", "2", "b", "inf", "10", "-1"]
    assert sorted(names, key=natural_order) == ["-1", "2", "10", "b", "inf", "nan"]
    assert not math.isnan(natural_order("nan")[1])
