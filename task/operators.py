"""torchvision beside a torch of another build: the operators that its import looks for are declared by name."""

import warnings
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")

# Kept for the life of the process: torch forgets an operator when its library object goes.
_libraries: list[torch.library.Library] = []


def with_torchvision(call: Callable[[], T]) -> T:
    """Call a function that may import torchvision, even where torchvision does not fit the torch beside it.

    A torchvision wheel beside a torch of another build (CPU-only, say) leaves its operators out, and then fails at
    import because it wants to describe two of them. Data sets and models need no operator: declaring the missing ones
    by name is enough. The function is then called a second time.
    """
    try:
        return call()
    except Exception as error:  # whoever called torchvision may have wrapped its RuntimeError
        if _libraries or "operator torchvision::nms does not exist" not in str(error):
            raise
    library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]  # torch's own
    for operator in ("nms", "qnms"):
        schema = f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        library.define(schema)  # type: ignore[no-untyped-call]  # torch's own
    _libraries.append(library)
    with warnings.catch_warnings():
        # The same mismatch makes torchvision warn that its image decoders are missing: none is used here.
        warnings.filterwarnings("ignore", message="Failed to load image Python extension")
        return call()
