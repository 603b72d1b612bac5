"""CFL-GP: the messages that it alone sends."""

TRAIN_PROBE = "florets.strategies.cfl_gp.client:train_probe"
