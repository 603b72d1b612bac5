"""Data sets, as `florets.task.registry` names them; heavy imports wait until one is loaded.

Their options share names: `pooled` makes one pool of all samples, which a partition such as ``rotation_blocks``
splits on each client; `standardise` takes off the mean of all train pixels, and divides by their standard deviation.
Files that are missing, damaged or of another form, and options out of range, raise ValueError with the remedy.
"""
