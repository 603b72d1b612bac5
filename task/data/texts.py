"""Texts: AG News as tokens, and Amazon reviews as counts of words."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from florets.task.data.dataset import Dataset, FloatArray, IntArray
from florets.task.data.files import PublicFiles, file_name
from florets.task.randomness import Purpose, generator

_WORD = re.compile(r"\w+")
PADDING, UNKNOWN, SPECIAL = 0, 1, 2
"""Tokens that stand for no word, and how many there are: the first word of a vocabulary is token 2."""


def words_of(text: str) -> list[str]:
    """Return a text's words in lower case: runs of letters, digits and underscores."""
    return _WORD.findall(text.lower())


def vocabulary(texts: Iterable[Iterable[str]], size: int) -> dict[str, int]:
    """Return the rank, from 0, of each of the `size` most frequent words, of equal ones those seen first."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    return {word: rank for rank, (word, _) in enumerate(counts.most_common(size))}


def tokens(texts: Sequence[Sequence[str]], ranks: dict[str, int], length: int = 200) -> FloatArray:
    """Return texts as float32 (n, length) of tokens, cut or padded at their end."""
    found = np.full((len(texts), length), PADDING, dtype=np.float32)
    for row, text in zip(found, texts, strict=True):
        kept = text[:length]
        row[: len(kept)] = [SPECIAL + ranks[word] if word in ranks else UNKNOWN for word in kept]
    return found


_AG_NEWS_CLASSES, NEWS_WORDS = 4, 20_000
_AG_NEWS = PublicFiles(
    "ag_news",
    ("ag_news_csv",),
    'train.csv and test.csv, lines of "class","title","description" with classes 1 to 4 and no header',
    "Unpack the public archive ag_news_csv.tgz (Zhang, Zhao, LeCun) there.",
)


def ag_news(data_dir: Path | None, seed: int, num_clusters: int, train_file: str = "train.csv") -> Dataset:
    """Load AG News: 120,000 train and 7,600 test texts as tokens (n, length), in 4 classes of equal size.

    The files lie in ``<data_dir>/ag_news_csv``; `train_file` may name a part of ``train.csv``. Title and description
    are one text. Token 0 pads, token 1 stands for all words but the 20,000 most frequent ones.

    Source: CLoVE's published code: words by a regular expression, 20,000 of them, 200 a text.
    """
    file_name("task.data_options.train_file", train_file)
    folder = _AG_NEWS.folder(data_dir)
    train, y_train = _read_news(folder / train_file)
    test, y_test = _read_news(folder / "test.csv")
    ranks = vocabulary(train, NEWS_WORDS)
    return Dataset(tokens(train, ranks), y_train, tokens(test, ranks), y_test, num_outputs=_AG_NEWS_CLASSES)


def _read_news(path: Path) -> tuple[list[list[str]], IntArray]:
    """Return the words of each text, and the labels."""
    texts, labels = [], []
    with _AG_NEWS.reading(path), path.open(encoding="utf-8", newline="") as file:
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


DOMAINS = ("books", "dvd", "electronics", "kitchen")
_AMAZON = PublicFiles(
    "amazon_reviews",
    ("amazon_reviews", "processed_acl"),
    "for each of books, dvd, electronics and kitchen a folder with positive.review and negative.review (and "
    "unlabeled.review), of lines 'word:count ... #label#:positive'",
    "Unpack the public Multi-Domain Sentiment Dataset (processed_acl.tar.gz) there.",
)
WORDS, TEST_SHARE = 5_000, 0.1
"""Inputs, and the fraction of each kind's reviews that is the test set."""

Review = tuple[Counter[str], int]
"""Counts of a review's words, and its label: 1 for a good one, 0 for a bad one."""


def amazon_reviews(data_dir: Path | None, seed: int, num_clusters: int) -> Dataset:
    """Load reviews of books, DVDs, electronics and kitchenware as log(1 + count) of words, labels 0 (bad), 1 (good).

    Inputs are the 5,000 most frequent words of all kinds' training reviews; a tenth of each kind's reviews is the
    test set. A sample's group is its kind of product, so the partition ``by_class`` gives each cluster one. The files
    lie in ``<data_dir>/amazon_reviews`` (or the folder's name in the public archives).

    Source: CLoVE, Sec. 5 (5,000 words, 4 kinds of products, tenth for tests by its released code). Deviation: that
    code reads another author's archive of features; here they are made from the reviews, so that its exact samples
    and words differ.
    """
    folder = _AMAZON.folder(data_dir)
    rng = generator(seed, 0, Purpose.DATA)
    train: list[Review] = []
    test: list[Review] = []
    sizes: list[tuple[int, int]] = []
    for name in DOMAINS:
        reviews = _reviews(folder, name)
        num_test = round(TEST_SHARE * len(reviews))
        if not 0 < num_test < len(reviews):
            raise ValueError(f"data amazon_reviews: {name} has {len(reviews)} labelled reviews, which are too few.")
        order = rng.permutation(len(reviews))
        test += [reviews[i] for i in order[:num_test]]
        train += [reviews[i] for i in order[num_test:]]
        sizes.append((len(reviews) - num_test, num_test))
    ranks = vocabulary((counts.elements() for counts, _ in train), WORDS)
    labels = [np.array([label for _, label in part], dtype=np.int64) for part in (train, test)]
    train_groups, test_groups = (np.repeat(np.arange(len(DOMAINS)), part) for part in zip(*sizes, strict=True))
    return Dataset(
        _inputs(train, ranks),
        labels[0],
        _inputs(test, ranks),
        labels[1],
        num_outputs=2,
        group_train=train_groups,
        group_test=test_groups,
    )


def _inputs(reviews: Sequence[Review], ranks: dict[str, int]) -> FloatArray:
    # As wide as was asked for, even where there are fewer words: the model's shape must not depend on the split.
    found = np.zeros((len(reviews), WORDS), dtype=np.float32)
    for row, (counts, _) in zip(found, reviews, strict=True):
        for word, count in counts.items():
            if word in ranks:
                row[ranks[word]] = count
    return np.log1p(found, out=found)


def _reviews(folder: Path, domain: str) -> list[Review]:
    found: list[Review] = []
    # Archives that were packed on a Mac hold a hidden file next to each.
    for path in sorted((folder / domain).glob("[!.]*.review")):
        with _AMAZON.reading(path):
            # Titles and texts are in several encodings; of this one every byte is a character.
            text = path.read_text(encoding="latin-1")
            default = {"negative": 0, "positive": 1}.get(path.stem)
            found += _lines(text, default)
    if not found:
        raise _AMAZON.error(f"{folder} has no labelled review of {domain}")
    return found


def _lines(text: str, default: int | None) -> Iterator[Review]:
    """Yield the reviews of a file: one a line."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip(" \t"):
            continue
        counts: Counter[str] = Counter()
        label = default
        # A word may hold what Unicode calls a space, as \xa0.
        for entry in re.findall(r"[^ \t]+", line):
            word, colon, count = entry.rpartition(":")
            if word == "#label#":
                if count not in ("positive", "negative"):
                    raise ValueError(f"the label of line {number} is neither positive nor negative")
                label = int(count == "positive")
            elif not colon or not count.isdecimal():
                raise ValueError(f"an entry of line {number} is not word:count")
            elif "_" not in word:
                counts[word] += int(count)
        if label is not None:
            yield counts, label
