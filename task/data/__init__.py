"""Data sets: importing this package registers the built-in ones; heavy imports wait until one is loaded."""

from task.data.cifar10 import cifar10
from task.data.dataset import Dataset
from task.data.digits import digits
from task.data.linear import linear
from task.data.lines import lines
from task.data.mnist import fashion_mnist, mnist
from task.data.own import own

__all__ = ["Dataset", "cifar10", "digits", "fashion_mnist", "linear", "lines", "mnist", "own"]
