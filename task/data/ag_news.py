"""AG News: titles and first lines of news in four classes, as tokens."""

import csv
from pathlib import Path

import numpy as np

from florets.task.data.dataset import Dataset, IntArray
from florets.task.data.files import folder_of, reading
from florets.task.data.inside import file_name
from florets.task.data.words import tokens, vocabulary, words_of
from florets.task.registry import register_data

CLASSES = 4
_LAYOUT = 'train.csv and test.csv, lines of "class","title","description" with classes 1 to 4 and no header'
_REMEDY = "Unpack the public archive ag_news_csv.tgz (Zhang, Zhao, LeCun) there."


@register_data("ag_news", files=True)
def ag_news(
    data_dir: Path | None,
    seed: int,
    num_clusters: int,
    words: int = 20_000,
    length: int = 200,
    train_file: str = "train.csv",
) -> Dataset:
    """Load AG News: 120,000 train and 7,600 test texts as tokens (n, length), in 4 classes of equal size.

    The files lie in ``<data_dir>/ag_news_csv``. Title and description are one text. Token 0 pads, token 1 stands for
    all words out of the vocabulary. `seed` and `num_clusters` are not used.

    Parameters
    ----------
    data_dir
        Folder that holds ``ag_news_csv/``.
    words
        Size of the vocabulary: the most frequent words of the training texts. The model ``text_cnn`` needs 2 more
        entries for the tokens that are no words.
    length
        Tokens of a text; longer ones are cut, shorter ones padded at their end.
    train_file
        Name of the file of training texts, where another one than ``train.csv`` is meant, such as a part of it.

    Raises
    ------
    ValueError
        If a file is missing or does not have this form, or an option is out of its range.

    Source: CLoVE's published code: words by a regular expression, 20,000 of them, 200 a text.
    """
    for name, value in (("words", words), ("length", length)):
        if value < 1:
            raise ValueError(f"task.data_options.{name}={value} must be at least 1.")
    file_name("task.data_options.train_file", train_file)
    folder = folder_of("ag_news", data_dir, ("ag_news_csv",), _LAYOUT, _REMEDY)
    if not (folder / train_file).is_file():
        others = sorted(path.name for path in folder.glob("*.csv"))
        raise ValueError(
            f"data ag_news: {folder} has no file {train_file}, but {', '.join(others) or 'no .csv file at all'}. "
            f"Expected: {_LAYOUT}. {_REMEDY} A part of the training set is read with "
            "task.data_options.train_file=<name>."
        )
    train, y_train = _read(folder / train_file)
    test, y_test = _read(folder / "test.csv")
    ranks = vocabulary(train, words)
    return Dataset(tokens(train, ranks, length), y_train, tokens(test, ranks, length), y_test, num_outputs=CLASSES)


def _read(path: Path) -> tuple[list[list[str]], IntArray]:
    """Return the words of each text, and the labels."""
    texts, labels = [], []
    with reading("ag_news", path, _LAYOUT, _REMEDY), path.open(encoding="utf-8", newline="") as file:
        for number, fields in enumerate(csv.reader(file, strict=True), start=1):
            if len(fields) != 3:
                raise ValueError(f"record {number} has {len(fields)} fields and not 3")
            if fields[0] not in ("1", "2", "3", "4"):
                raise ValueError(f"the class of record {number} is none of 1, 2, 3, 4")
            texts.append(words_of(f"{fields[1]} {fields[2]}"))
            labels.append(int(fields[0]) - 1)
        if not texts:
            raise ValueError("it is empty")
    return texts, np.array(labels, dtype=np.int64)
