"""Class names stay the text that was typed, on the command line and in presets, and match labels however written."""

from pathlib import Path

import numpy as np
import pytest

from florets.conf.compose import compose
from florets.conf.presets import OWN_DIR
from florets.task.data.samples import targets

OWN = ("experiment=own_data", "task.partition_options={input_shape: [2], num_outputs: 2}")


def names(*overrides: str) -> list:
    return compose(overrides).task.data_options["classes"]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("[no, yes]", ["no", "yes"]),
        ("[null,1.0,1_000,nan]", ["null", "1.0", "1_000", "nan"]),
        ("""[0,1,'true',"a,1e3,b"]""", [0, 1, "true", "a,1e3,b"]),
    ],
)
def test_on_the_command_line(typed, expected):
    assert names(*OWN, f"task.data_options.classes={typed}") == expected
    assert names(*OWN, f"task.data_options={{classes: {typed}, grayscale: true}}") == expected


def preset(folder: Path, monkeypatch: pytest.MonkeyPatch, **written: str) -> None:
    (folder / "experiment").mkdir(exist_ok=True)
    for name, classes in written.items():
        (folder / "experiment" / f"{name}.yaml").write_text(
            f"# Test.\ndefaults:\n  - /experiment/own_data\ntask:\n  data_options:\n    classes: {classes}\n"
        )
    monkeypatch.setenv(OWN_DIR, str(folder))


def test_in_presets(tmp_path, monkeypatch):
    written = {
        "words": "[no, yes]",
        "zeros": "[01, 02]",
        "floats": "[1e3, 2e3]",
        "integers": "[0, 1]",
        "others": '[true, null, ~, 2020-01-01, 1:30, "no", 1_0]',
    }
    preset(tmp_path, monkeypatch, **written)
    assert names("experiment=words") == ["no", "yes"]
    assert names("experiment=zeros") == ["01", "02"]
    assert names("experiment=floats") == ["1e3", "2e3"]
    assert names("experiment=integers") == [0, 1]
    assert names("experiment=others") == ["true", "null", "~", "2020-01-01", "1:30", "no", "1_0"]
    # A preset laid over another one inherits them.
    (tmp_path / "experiment" / "heir.yaml").write_text("# Test.\ndefaults:\n  - words\n")
    assert names("experiment=heir") == ["no", "yes"]
    assert names("experiment=words", "task.data_options.classes=[1,2]") == [1, 2]


@pytest.mark.parametrize(
    ("values", "classes", "expected"),
    [
        (np.array([0.0, 1.0]), ["0", "1"], [0, 1]),
        (np.array(["0.0", "1.00", "1."]), ["0", "1"], [0, 1, 1]),
        (np.array(["01", "1", "1.0"]), ["01", "1"], [0, 1, 1]),
    ],
)
def test_labels_match_the_names_of_classes(values, classes, expected):
    assert targets(Path("x"), values, classes, False).tolist() == expected


@pytest.mark.parametrize("values", [np.array([0.0, 7.5]), np.array(["01", "1"]), np.array(["a", "marked"])])
def test_a_label_that_is_no_class_is_not_quoted(values):
    with pytest.raises(ValueError, match=r"the target of sample \d is none of the classes") as caught:
        targets(Path("x"), values, ["0", "1", "a"], False)
    assert not {"7.5", "01", "marked"} & set(str(caught.value).split())
