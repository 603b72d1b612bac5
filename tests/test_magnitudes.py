"""Inputs of another magnitude than the other nodes': reported before training, by name and without a value."""

import logging

import numpy as np

from florets.commands import main
from florets.strategies.base.federation import InputMagnitudes
from florets.task.wire.introduction import Magnitude


def node(folder, pixels):
    folder.mkdir(parents=True)
    np.savez(folder / "data.npz", x=pixels, y=np.arange(len(pixels)) % 2)


def test_floats_from_0_to_255_beside_bytes_are_named_before_training(tmp_path, caplog):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 4), dtype=np.uint8)
    for name, x in (("a", pixels), ("b", pixels / np.float32(255)), ("c", pixels.astype(np.float32)), ("d", pixels)):
        node(tmp_path / "data" / name, x)
    given = ["experiment=own_data", "strategy=fedavg", "k=1", "num_rounds=1", "-q", "pictures=false"]
    given += ["task.partition_options={input_shape: [4], num_outputs: 2}", f"data_dir={tmp_path / 'data'}"]
    with caplog.at_level(logging.WARNING, "florets"):
        assert main.main([*given, f"results_dir={tmp_path / 'results'}"]) == 0
    (line,) = [record.getMessage() for record in caplog.records if "orders of magnitude" in record.getMessage()]
    # 148 / 0.58, each with one digit: 100 / 0.6.
    assert "those of c 200 times (numbers as they are). If pixels are floats from 0 to 255, divide them" in line


def far(**values: float) -> str | None:
    return InputMagnitudes().warning({key: Magnitude(value, False) for key, value in values.items()})


def test_only_ratios_above_20_are_far_and_of_two_the_larger_one():
    assert far() is far(a=0.5) is far(a=0.5, b=10.0, c=0.025) is far(a=0.0, b=0.0) is None
    assert "those of b 300 times" in str(far(a=0.5, b=150.0))
    assert "those of a 0.003 times" in str(far(a=0.5, b=150.0, c=160.0))
    assert "those of a 0 times" in str(far(a=0.0, b=0.5, c=0.5))
    assert " and 2 more." in str(far(**{f"x{i}": 100.0 for i in range(7)}, **{f"y{i}": 1.0 for i in range(9)}))


def test_a_late_client_is_compared_and_the_others_are_not_named_again():
    known = InputMagnitudes()
    assert known.warning({"a": Magnitude(0.5, True), "b": Magnitude(100.0, False), "c": Magnitude(0.4, True)})
    assert known.warning({"d": Magnitude(0.3, True)}) is None
    assert "those of e 200 times" in str(known.warning({"e": Magnitude(100.0, False)}))
