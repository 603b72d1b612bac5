"""Data sets, partitions, models, training and the messages' wire format."""
