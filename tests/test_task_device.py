"""Devices by name: what this machine has not is refused with what it has."""

import pytest
import torch

from florets.task.device import find_device


@pytest.mark.parametrize(
    ("name", "gpus", "apple", "found"),
    [
        ("cpu", 1, True, "cpu"),
        ("auto", 2, False, "cuda"),
        ("auto", 0, True, "mps"),
        ("auto", 0, False, "cpu"),
        ("cuda", 1, False, "cuda"),
        ("cuda:1", 2, False, "cuda:1"),
        ("mps", 0, True, "mps"),
    ],
)
def test_a_name_finds_its_device(
    name: str, gpus: int, apple: bool, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(gpus, apple, monkeypatch)
    assert str(find_device(name)) == found


@pytest.mark.parametrize(
    ("name", "gpus", "said"),
    [
        ("cuda", 0, "sees no CUDA device"),
        ("cuda:2", 2, "numbered from 0 to 1"),
        ("mps", 0, "sees no Apple GPU"),
        ("gpu", 1, "is not a device"),
        ("meta", 1, "is not one that florets computes on; use cpu"),
    ],
)
def test_a_device_that_is_not_there_is_refused(
    name: str, gpus: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(gpus, False, monkeypatch)
    with pytest.raises(ValueError, match=rf"device={name}.*{said}"):
        find_device(name)


def machine(gpus: int, apple: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: apple)
