"""Data sets: importing this package registers the built-in ones; heavy imports wait until one is loaded."""

from florets.task.data.cifar10 import cifar10
from florets.task.data.dataset import Dataset
from florets.task.data.digits import digits
from florets.task.data.linear import linear
from florets.task.data.lines import lines
from florets.task.data.mnist import fashion_mnist, mnist
from florets.task.data.own import own

__all__ = ["Dataset", "cifar10", "digits", "fashion_mnist", "linear", "lines", "mnist", "own"]
