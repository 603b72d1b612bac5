"""FedEM's messages: a client is sent K models and its shares of them, and returns all K trained and its new shares.

FedRC also sends each model's class shares, and the reply then holds the client's responsibilities summed by class.
"""

TRAIN_MIXTURE = "florets.strategies.fedem.client:train_mixture"
EVALUATE_MIXTURE = "florets.strategies.fedem.client:evaluate_mixture"
