"""Adapters: a frozen model, and small trained changes of its layers, by the library peft."""

from typing import Any

from torch import nn

from florets.task.imported import with_torchvision
from florets.task.layers import is_of_layer
from florets.task.settings import Adapter

_NAME = "lora"
_ZERO, _DRAWN = (".lora_B.", ".lora_embedding_A."), (".lora_A.", ".lora_embedding_B.")
"""Factors that peft begins with zeros, and those that it draws; of embeddings they are the other ones."""
_NO_LAYER = "task.adapter_options.{key}: no layer is called {name!r}; the layers are {names}."
ALPHA, SPREAD = 16, 0.02
"""Factor of a change times its rank, and standard deviation of the first entries of B: groups' models must differ."""


def adapt(module: nn.Module, options: Adapter) -> None:
    """Freeze a module, and give its layers adapters of low rank that are trained in its place.

    A layer W computes W + `ALPHA` / rank * B A. With ``train="b"`` A stays as it is drawn, the same for all: clients'
    mean change is then that of their mean B, and not so where means of A and of B are multiplied.

    Source: Hu et al. 2022 (LoRA, arXiv 2106.09685), eq. 3; Sun et al. 2024 (FFA-LoRA, arXiv 2403.12313), Sec. 4.
    Deviation: B begins with small random values (`SPREAD`), because methods cannot tell equal models apart.
    """
    peft = with_torchvision(_peft)
    names = [name for name, _ in module.named_modules() if name]
    for target in options.targets:
        if not any(f".{one}".endswith(f".{target}") for one in names):
            raise ValueError(_NO_LAYER.format(key="targets", name=target, names=", ".join(names)))
    for prefix in options.whole:
        if not any(is_of_layer(one, prefix) for one in names):
            raise ValueError(_NO_LAYER.format(key="whole", name=prefix, names=", ".join(names)))
    whole = [name for name in names if any(is_of_layer(name, prefix) for prefix in options.whole)]
    # By type: those of nn.MultiheadAttention are of another one, whose weights it takes itself.
    linear = [name for name, part in module.named_modules() if type(part) is nn.Linear and name and name not in whole]
    targets = options.targets or linear
    if not targets:
        raise ValueError(
            f"task.adapter=lora: the model has no linear layers; name some in task.adapter_options.targets, of "
            f"{', '.join(names) or 'which it has none'}."
        )
    config = peft.LoraConfig(r=options.rank, lora_alpha=ALPHA, target_modules=targets, exclude_modules=whole or None)
    try:
        peft.inject_adapter_in_model(config, module, _NAME)
    except (ValueError, TypeError) as error:
        raise ValueError(f"task.adapter_options.targets={targets}: {error}") from error
    begin_apart(module)
    for name, parameter in module.named_parameters():
        if options.train == "b" and any(part in name for part in _DRAWN):
            parameter.requires_grad_(False)
        elif any(is_of_layer(name, prefix) for prefix in options.whole):
            parameter.requires_grad_(True)


def begin_apart(module: nn.Module) -> None:
    """Draw the factors anew that peft begins with zeros, with a small standard deviation."""
    for name, parameter in module.named_parameters():
        if any(part in name for part in _ZERO):
            nn.init.normal_(parameter, std=SPREAD)


def unused(module: nn.Module) -> list[str]:
    """Return the layers whose adapters a backward pass has not reached."""
    named = module.named_parameters()
    return [name.partition(".lora_B.")[0] for name, value in named if ".lora_B." in name and value.grad is None]


def _peft() -> Any:
    try:
        import peft
    except ModuleNotFoundError as error:
        if error.name != "peft":
            raise
        raise ValueError('task.adapter=lora: needs peft; pip install "florets[adapters]" installs it.') from None
    return peft
