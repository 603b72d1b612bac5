"""FedProto: the client handler that it asks; the reply is a `PrototypeUpdate`."""

TRAIN_PROTOTYPES = "florets.strategies.fedproto.client:train_prototypes"
