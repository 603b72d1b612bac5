"""Checks of a model before any training: its parameters, what its forward returns, and one gradient."""

import math
import random
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from florets.task.adapters import unused
from florets.task.layers import at_home, at_home_hash
from florets.task.training.losses import per_sample_losses, targets_of
from florets.task.training.modules import torch_random

_FLOATS = (torch.float32, torch.float64)


def check_model(module: Module, x: Tensor, y: Tensor, loss: str, num_outputs: int, seed: int) -> None:
    """Compute loss and gradient on samples, two at least; raise ValueError for a model that cannot be trained."""
    _check_parameters(module)
    targets = targets_of(x, y, loss)
    size = num_outputs if loss == "cross_entropy" or ":" in loss else targets[0].numel()
    what = f"{size} classes" if loss == "cross_entropy" else f"loss {loss}"
    wanted = f"for {what} its forward must return one tensor of shape (n, {size})"
    draws, frozen = _global_draws(), at_home_hash(module)
    for training in (False, True):
        module.train(training)
        with torch_random(np.random.default_rng(seed)), torch.set_grad_enabled(training):
            outputs = _called(module, x, wanted)
            if ":" in loss and isinstance(outputs, Tensor) and outputs.shape[:1] == (len(x),):
                # What its outputs are is between the model and its loss.
                size = outputs[0].numel()
            if not _fits(outputs, x, (len(x), size), loss == "cross_entropy"):
                raise ValueError(f"{wanted}, for n={len(x)} samples, but returned {_described(outputs)}")
            losses = per_sample_losses(outputs, targets, loss)
            if training:
                _check_step(module, losses)
    if _global_draws() != draws:
        raise ValueError(
            "it draws from the global generator of NumPy or of random, which no seed of a run reaches: draw by torch "
            "(torch.rand, torch.randperm), or from a generator that the module keeps"
        )
    if at_home_hash(module) != frozen:
        raise ValueError(
            "one pass through it changes a parameter with requires_grad=False, and these are not sent: what the "
            "forward keeps is made part of the model by register_buffer"
        )


def _global_draws() -> tuple[object, ...]:
    """Return the states of the generators that all clients share and no run seeds."""
    # As text, which has the position and the ends of a long state: arrays do not compare to one truth value.
    return random.getstate(), str(np.random.get_bit_generator().state)  # type: ignore[attr-defined]  # not in the stubs


def _check_parameters(module: Module) -> None:
    entries, frozen = {**module.state_dict(), **dict(module.named_parameters())}, at_home(module)
    for name, value in entries.items():
        # What stays at home may have any type: it is neither sent nor averaged.
        if name not in frozen and (value.is_complex() or (value.is_floating_point() and value.dtype not in _FLOATS)):
            raise ValueError(
                f"its {name} has the type {value.dtype}, and parameters and buffers must have float32: build "
                "it with .float(); train.precision=bfloat16 computes in bfloat16"
            )
        if value.device.type != "cpu":
            raise ValueError(f"its {name} is on {value.device}: build it on the CPU; device=<name> moves it")
    parameters = list(module.parameters())
    if not parameters:
        raise ValueError("it has no parameters: there is nothing to train; register layers as attributes of modules")
    if not any(value.requires_grad for value in parameters):
        raise ValueError("all of its parameters are frozen (requires_grad=False): let some be trained")


def _called(module: Module, x: Tensor, wanted: str) -> Any:
    try:
        return module(x)
    # The model's code may raise anything.
    except Exception as error:
        raise ValueError(
            f"{wanted} for one tensor of inputs {tuple(x.shape)}, but raised {type(error).__name__}: {error}"
        ) from error


def _fits(outputs: Any, x: Tensor, shape: tuple[int, int], is_classes: bool) -> bool:
    if not isinstance(outputs, Tensor) or outputs.dtype not in _FLOATS or outputs.device != x.device:
        return False
    # Values and reconstructions are compared entry by entry, in whatever shape they come.
    alike = outputs.shape[:1] == shape[:1] and outputs.numel() == math.prod(shape)
    return tuple(outputs.shape) == shape or (alike and not is_classes)


def _check_step(module: Module, losses: Tensor) -> None:
    try:
        losses.mean().backward()  # type: ignore[no-untyped-call]  # torch leaves it without types
    # Its layers may have backward passes of their own.
    except Exception as error:
        hint = ""
        if not losses.requires_grad:
            hint = "; what it returns does not depend on a trained parameter (detach, no_grad, numpy)"
        elif "inplace" in str(error):
            hint = "; its forward changes in place what the gradient needs: x = x + 1 in place of x += 1"
        raise ValueError(
            f"the gradient of its loss cannot be computed ({type(error).__name__}: {error}){hint}"
        ) from error
    if idle := unused(module):
        raise ValueError(
            f"the adapters of {', '.join(idle)} take no part: the layer around them computes with their weights "
            "itself, as nn.MultiheadAttention does with out_proj; name other layers in task.adapter_options.targets"
        )


def _described(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"one of shape {tuple(value.shape)}, {value.dtype}, on {value.device}"
    return f"a {type(value).__name__}"
