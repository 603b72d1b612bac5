"""Mixed regression: the messages that it alone sends."""

TRAIN_SOFT = "florets.strategies.two_phase.client:train_soft"
MOMENT_DESCENT = "florets.strategies.two_phase.client:moment_descent"
SUBSPACE = "florets.strategies.two_phase.client:subspace"
MOMENTS = "florets.strategies.two_phase.client:factors"
