"""Freed memory that the C library keeps is given back where a step takes much."""

import sys
from pathlib import Path

import pytest

from florets.strategies.base import strategy as module
from florets.strategies.base.strategy import give_back_freed

PIECE, PIECES = 65_536, 3_000


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(module._trim is None, reason="this C library keeps freed memory")
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_freed_memory_goes_back_before_a_large_step_alone() -> None:
    pieces = [bytearray(b"1" * PIECE) for _ in range(PIECES)]
    # One that stays above them holds what is freed below it.
    last = pieces.pop()
    del pieces
    before = resident()
    give_back_freed(1_000)
    assert resident() == pytest.approx(before, abs=PIECE * 100)
    give_back_freed(10**9)
    assert before - resident() > PIECE * PIECES / 2
    assert len(last) == PIECE


def test_without_such_a_library_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_trim", None)
    give_back_freed(10**9)
