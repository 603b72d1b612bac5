"""Models: published sizes, shapes, and the fast pooling's bits."""

import numpy as np
import pytest
import torch
from torch import nn

from florets.task import models
from florets.task.layers import body_and_head
from florets.task.models.cnn import pool_and_relu
from florets.task.task import initial_models


def num_parameters(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("size", [(24, 24), (7, 9)])
def test_both_ways_of_pooling_give_the_same_bits(size):
    x = torch.randn(4, 6, *size, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        fast = pool_and_relu(x)
    assert torch.equal(fast, pool_and_relu(x))
    assert torch.equal(fast, nn.functional.max_pool2d(torch.relu(x), 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: models.cnn((1, 8, 8), 10), r"too small for model cnn: .* kernel=3 padding=1"),
        (lambda: models.cnn((20,), 1), r"needs images .* shape \(20,\)"),
    ],
)
def test_models_that_do_not_fit_are_refused_with_the_remedy(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_initial_models_differ_and_do_not_depend_on_their_number():
    few = initial_models(lambda: models.mlp((4,), 2), 2, "different", 3)
    many = initial_models(lambda: models.mlp((4,), 2), 4, "different", 3)
    for a, b in zip(few, many, strict=False):
        assert all(np.array_equal(a[name], b[name]) for name in a)
    assert not np.array_equal(many[0]["1.weight"], many[1]["1.weight"])
    other_seed = initial_models(lambda: models.mlp((4,), 2), 2, "different", 4)
    assert not np.array_equal(few[0]["1.weight"], other_seed[0]["1.weight"])


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: models.cnn((1, 28, 28), 10), 5_142),
        (lambda: models.cnn((1, 28, 28), 62), 18_506),
        (lambda: models.autoencoder((1, 28, 28), 10), 2_000_964),
        (lambda: models.linear((1, 8, 8), 10, bias=True), 650),
        (lambda: models.mlp((1, 28, 28), 10, [200]), 784 * 200 + 200 + 2000 + 10),
        (lambda: models.cifar_cnn((3, 32, 32), 10), 4_181_002),
        (lambda: models.conv_autoencoder((3, 32, 32), 10), 712_835),
        (lambda: models.mlp((5_000,), 2, [1000, 500, 100]), 5_551_802),
        (lambda: models.text_cnn((200,), 6, tokens=32_000), 3_322_106),
        pytest.param(lambda: models.resnet18((3, 32, 32), 10), 11_173_962, marks=pytest.mark.slow),
        pytest.param(lambda: models.resnet18((3, 32, 32), 10, large_images=True), 11_181_642, marks=pytest.mark.slow),
    ],
)
def test_networks_have_the_published_number_of_parameters(make, expected):
    assert num_parameters(make()) == expected


SMALL = [
    (lambda: models.cnn((3, 31, 33), 5, channels=[4]), (3, 31, 33), 5),
    (lambda: models.autoencoder((1, 8, 8), 10), (1, 8, 8), 64),
    (lambda: models.mlp((2, 3), 4), (2, 3), 4),
    (lambda: models.cifar_cnn((3, 8, 9), 5, channels=[4, 6], hidden=[7]), (3, 8, 9), 5),
    (lambda: models.conv_autoencoder((3, 8, 4), 0, channels=[4, 6], code=5), (3, 8, 4), 96),
    (lambda: models.csi_autoencoder((2, 4, 6), 0, code=5), (2, 4, 6), 48),
    (lambda: models.text_cnn((9,), 3, tokens=7, embedding=4, filters=2), (9,), 3),
    pytest.param(lambda: models.resnet18((1, 8, 8), 3), (1, 8, 8), 3, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("make", "shape", "width"), SMALL)
def test_networks_give_outputs_of_the_right_shape_and_all_their_layers_learn(make, shape, width):
    module = make()
    x = torch.randint(1, 7, (3, *shape)).float()
    outputs = module(x)
    assert outputs.shape == (3, width)
    outputs.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    module.eval()
    with torch.inference_mode():
        assert torch.equal(module(x), module(x))
    assert body_and_head(module)[0]
