"""Data sets: importing this package registers the built-in ones; heavy imports wait until one is loaded.

Their options share names: `pooled` makes one pool of all samples, which a partition such as ``rotation_blocks``
splits on each client; `standardise` takes off the mean of all train pixels, and divides by their standard deviation.
Files that are missing, damaged or of another form, and options out of range, raise ValueError with the remedy.
"""

from florets.task.data.channels import channels, cost2100
from florets.task.data.dataset import Dataset
from florets.task.data.handwriting import digits, emnist, fashion_mnist, femnist, mnist, mnist_and_fashion
from florets.task.data.own import own
from florets.task.data.regression import linear, lines
from florets.task.data.sites import heart_disease, landmine, schools
from florets.task.data.texts import ag_news, amazon_reviews
from florets.task.data.vision import cifar10

__all__ = [
    "Dataset",
    "ag_news",
    "amazon_reviews",
    "channels",
    "cifar10",
    "cost2100",
    "digits",
    "emnist",
    "fashion_mnist",
    "femnist",
    "heart_disease",
    "landmine",
    "linear",
    "lines",
    "mnist",
    "mnist_and_fashion",
    "own",
    "schools",
]
