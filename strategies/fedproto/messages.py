"""FedProto: the messages that it alone sends."""

TRAIN_PROTOTYPES = "florets.strategies.fedproto.client:train_prototypes"
