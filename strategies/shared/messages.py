"""Messages that several algorithms send."""

TRAIN_FOLDS = "florets.strategies.shared.client:train_folds"
QUERY_FOLDS = "florets.strategies.shared.client:query_folds"
TRAIN_BILEVEL = "florets.strategies.shared.client:train_bilevel"
