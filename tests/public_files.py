"""Tiny files of public data sets in their exact form."""

import gzip
import json
from pathlib import Path

import numpy as np


def write_news(path: Path, records: list[tuple[int, str, str]]) -> None:
    """Write lines as the public files have them: all fields quoted, inner quotes doubled."""
    quoted = [",".join('"' + str(field).replace('"', '""') + '"' for field in record) for record in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in quoted), encoding="utf-8")


def idx_bytes(array: np.ndarray) -> bytes:
    """Return an array of unsigned bytes as an IDX file."""
    head = bytes((0, 0, 8, array.ndim)) + np.array(array.shape, dtype=">u4").tobytes()
    return head + array.astype(np.uint8).tobytes()


def write_idx(folder: Path, prefix: str, n: int, labels: np.ndarray, packed: bool = False) -> np.ndarray:
    """Write images and labels; return the images."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(n).integers(256, size=(n, 28, 28)).astype(np.uint8)
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        content, path = idx_bytes(array), folder / f"{prefix}-{name}-ubyte"
        if packed:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(content))
        else:
            path.write_bytes(content)
    return images


def write_reviews(folder: Path, raw: bool, number: int = 5) -> None:
    """Write reviews of each kind, `number` good and as many bad ones, in one of the public archives' two forms."""
    for domain in ("books", "dvd", "electronics", "kitchen_&_housewares" if raw else "kitchen"):
        (folder / domain).mkdir(parents=True)
        for word, stars in (("positive", 5.0), ("negative", 1.0)):
            lines = []
            for review in range(number):
                text = f"{domain.split('_')[0]} {'great great' if stars > 3 else 'bad'} thing{review}"
                if raw:
                    block = f"<title>\nA \xe9\n</title>\n<review_text>\n{text}\n</review_text>\n"
                    lines.append(
                        f"<review>\n<unique_id>\n1\n</unique_id>\n<rating>\n{stars}\n</rating>\n{block}</review>\n"
                    )
                else:
                    counts = " ".join(f"{w}:{text.split().count(w)}" for w in dict.fromkeys(text.split()))
                    lines.append(f"{counts} great_thing:7 #label#:{word}\n")
            (folder / domain / f"{word}.review").write_text("".join(lines), encoding="latin-1")
        neutral = "<review>\n<rating>\n3.0\n</rating>\n<review_text>\nso so\n</review_text>\n</review>\n"
        (folder / domain / "unlabeled.review").write_text(neutral if raw else "so:2\n")


def write_leaf(path: Path, writers: dict[str, int], first: int = 0) -> None:
    """Write images of some writers as LEAF does; the first pixel counts all images of the file."""
    content: dict[str, object] = {"users": list(writers), "num_samples": list(writers.values()), "user_data": {}}
    for writer, n in writers.items():
        x = [[float(first + i)] + [1.0] * 783 for i in range(n)]
        content["user_data"][writer] = {"x": x, "y": [61 - i for i in range(n)]}  # type: ignore[index]
        first += n
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
