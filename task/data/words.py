"""Words of texts, and a vocabulary of the most frequent ones."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from florets.task.data.dataset import FloatArray

_WORD = re.compile(r"\w+")
PADDING, UNKNOWN, SPECIAL = 0, 1, 2
"""Tokens that stand for no word, and how many there are: the first word of a vocabulary is token 2."""


def words_of(text: str) -> list[str]:
    """Return a text's words in lower case: runs of letters, digits and underscores."""
    return _WORD.findall(text.lower())


def vocabulary(texts: Iterable[Iterable[str]], size: int) -> dict[str, int]:
    """Return the rank, from 0, of each of the `size` most frequent words, of equally frequent ones those seen first.

    Parameters
    ----------
    texts
        The words of each text, of the training data alone.
    size
        Most words that are kept, at least 1.
    """
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    return {word: rank for rank, (word, _) in enumerate(counts.most_common(size))}


def tokens(texts: Sequence[Sequence[str]], ranks: dict[str, int], length: int) -> FloatArray:
    """Return texts as float32 (n, length) of tokens, cut or padded at their end.

    Tokens are integers that travel as float32, in which all inputs do: each below 2^24 is exact.
    """
    found = np.full((len(texts), length), PADDING, dtype=np.float32)
    for row, text in zip(found, texts, strict=True):
        kept = text[:length]
        row[: len(kept)] = [SPECIAL + ranks[word] if word in ranks else UNKNOWN for word in kept]
    return found
