"""A node opens nothing outside its data folder: names that are paths, links that lead out."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from florets.task.data.files import file_name, inside
from florets.task.data.own import own
from florets.task.data.texts import ag_news


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a node's data folder, empty; beside it lies a folder that is none of the run's business."""
    for place in ("node", "elsewhere/cat"):
        (tmp_path / place).mkdir(parents=True)
    picture(tmp_path / "elsewhere" / "cat" / "1.png")
    np.savez(tmp_path / "elsewhere" / "data.npz", x=np.ones((4, 2)), y=np.arange(4) % 2)
    return tmp_path / "node"


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (2, 2)).save(path)


def linked(place: str, target: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).symlink_to(folder.parent / target)

    return make


@pytest.mark.parametrize(
    "make",
    [
        linked("data.npz", "elsewhere/data.npz"),
        linked("data", "elsewhere"),
        linked("data/cat", "elsewhere/cat"),
        linked("data/cat/1.png", "elsewhere/cat/1.png"),
        linked("data/cat/deep/er", "elsewhere/cat"),
        # Its own folder's parent, whose name begins with its own.
        linked("data/cat", "."),
    ],
)
def test_links_that_lead_out_are_refused(make: Callable[[Path], None], folder: Path) -> None:
    make(folder)
    with pytest.raises(ValueError, match="points outside the data folder"):
        own(folder, 0, 0, classes=["cat", "0", "1"])


def test_links_inside_the_folder_and_to_it_are_followed(folder: Path) -> None:
    picture(folder / "store" / "1.png")
    picture(folder / "data" / "cat" / "2.png")
    (folder / "data" / "cat" / "1.png").symlink_to(folder / "store" / "1.png")
    (folder.parent / "link").symlink_to(folder)
    assert len(own(folder.parent / "link", 0, 0, classes=["cat"]).y_train) == 1


def test_a_link_in_a_circle_is_refused(folder: Path) -> None:
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")
    with pytest.raises(ValueError, match="points outside the data folder"):
        inside(folder, folder / "a")


@pytest.mark.parametrize("name", ["../../elsewhere", "..", ".", "", "a/b", "/tmp", "a\\b", "a\0b", "c:x"])
def test_names_that_a_server_sends_are_no_paths(name: str, folder: Path) -> None:
    picture(folder / "data" / "cat" / "1.png")
    with pytest.raises(ValueError, match=r"task.data_options.classes=.* must be a name"):
        own(folder, 0, 0, classes=["cat", name])
    with pytest.raises(ValueError, match=r"task.data_options.train_file=.* must be a name"):
        ag_news(folder, 0, 0, train_file=name)


def test_usual_names_of_classes_are_names() -> None:
    for name in ("cat", "Iris setosa", "..cat", "naïve", "0", ".hidden", "1.5"):
        assert file_name("key", name) == name
