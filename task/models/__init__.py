"""Models, as `florets.task.registry` names them.

Images have the `input_shape` (channels, height, width). Autoencoders do not use `num_outputs`: their outputs are the
d entries of an input. Inputs and options that do not fit raise ValueError with the remedy.
"""
