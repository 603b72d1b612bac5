"""Data sets: importing this package registers the built-in ones; heavy imports wait until one is loaded."""

from florets.task.data.ag_news import ag_news
from florets.task.data.amazon import amazon_reviews
from florets.task.data.cifar import cifar10, cifar100
from florets.task.data.cost2100 import cost2100
from florets.task.data.dataset import Dataset
from florets.task.data.digits import digits
from florets.task.data.emnist import emnist
from florets.task.data.femnist import femnist
from florets.task.data.hugging_face import hugging_face
from florets.task.data.linear import linear
from florets.task.data.lines import lines
from florets.task.data.mnist import fashion_mnist, mnist, mnist_and_fashion
from florets.task.data.own import own
from florets.task.data.svhn import svhn
from florets.task.data.tiny_imagenet import tiny_imagenet

__all__ = [
    "Dataset",
    "ag_news",
    "amazon_reviews",
    "cifar10",
    "cifar100",
    "cost2100",
    "digits",
    "emnist",
    "fashion_mnist",
    "femnist",
    "hugging_face",
    "linear",
    "lines",
    "mnist",
    "mnist_and_fashion",
    "own",
    "svhn",
    "tiny_imagenet",
]
