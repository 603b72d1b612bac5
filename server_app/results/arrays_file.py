"""Arrays in a safetensors file: equal arrays and texts make equal files."""

import json
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray


def write_arrays(
    file: IO[bytes], arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays by their names, and texts beside them, as one safetensors file."""
    # safetensors writes an array's memory as it lies there, so it must lie in row order.
    rows = {name: np.require(values, requirements="C") for name, values in arrays.items()}
    packed = safetensors.numpy.save(rows, dict(metadata) if metadata else None)
    # It takes the texts in the order of a hash table with a new seed in each process: they are sorted here.
    end = 8 + int.from_bytes(packed[:8], "little")
    header = json.loads(packed[8:end])
    if metadata:
        header["__metadata__"] = dict(sorted(metadata.items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    # No copy: a checkpoint can fill a good part of the memory.
    file.write(memoryview(packed)[end:])
