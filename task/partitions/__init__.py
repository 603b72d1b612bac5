"""Partitions with known true clusters, as `florets.task.registry` names them.

What they share, unless one says otherwise: they go by the data set's groups, its classes or the true model of each
sample; clients are spread evenly over the clusters and numbered cluster by cluster; `rng` draws all that is random;
a client has at most `samples_per_client` and `test_samples_per_client` samples; None: all (for test: the same bound
as for train). Options, numbers of clients or clusters and data that do not fit raise ValueError with the remedy.
"""
