"""Python's search for garbage during a run."""

import gc

from florets.strategies.base.loop import seldom_collected


def test_the_search_is_seldom_within_the_block_alone() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with seldom_collected():
        assert gc.get_threshold()[0] > before[0]
        assert gc.get_freeze_count() > frozen
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_a_run_that_was_set_to_search_even_less_stays_so() -> None:
    before = gc.get_threshold()
    gc.set_threshold(10**6, *before[1:])
    try:
        with seldom_collected():
            assert gc.get_threshold()[0] == 10**6
    finally:
        gc.set_threshold(*before)
    gc.set_threshold(0, *before[1:])
    try:
        with seldom_collected():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
