"""Methods and queries as an author writes them, some of which are wrong."""

from typing import Any

import torch

import florets


@florets.handler
def forgetful(client: florets.Client) -> Any:
    """Leave out what the method says that it returns."""
    return client.reply(client.train())


@florets.handler
def plain(client: florets.Client) -> Any:
    return client.reply(client.train())


@florets.handler
def statistics(client: florets.Client) -> Any:
    """Return the mean input and two numbers; client 1 sends another shape, client 2 a NaN, client 3 a number less."""
    mean = client.data.x_train.flatten(1).mean(0)
    if client.key == "1":
        mean = mean[:3]
    if client.key == "2":
        mean = mean * torch.nan
    numbers = {} if client.key == "3" else {"spread": float(client.data.x_train.std())}
    return client.reply(mean=mean, scaled=client.num_examples * client.config["factor"], **numbers)


class Forgetful(florets.Method[Any, Any]):
    handler = forgetful
    returns = ("change",)


class Halved(florets.Method[Any, Any]):
    def average(self, model: Any, updates: Any) -> Any:
        return model / 2


class Mean(florets.Method[Any, Any]):
    def average(self, model: Any, updates: Any) -> Any:
        return super().average(model, updates)


class Failing(florets.Method[Any, Any]):
    def uses(self, client: str, model: Any) -> Any:
        raise NotImplementedError


@florets.handler
def unwritten(client: florets.Client) -> Any:
    """Fail in each client alike, without a word."""
    raise NotImplementedError


class Unwritten(florets.Method[Any, Any]):
    handler = unwritten


class Asking(florets.strategies.FedAvg):
    """FedAvg that asks for statistics in round 1."""

    client_handlers = (statistics,)
    answers: Any = None

    def round(self, context: florets.Round) -> Any:
        if context.server_round == 1:
            found = context.query(
                statistics,
                context.online,
                returns={"mean": (64,)},
                numbers=("spread", "scaled"),
                settings={"factor": 2},
            )
            type(self).answers = found
        return (yield from super().round(context))


class WithoutItsReturns(florets.strategies.FedAvg):
    method = Forgetful


class PlainHandler(florets.Method[Any, Any]):
    handler = plain


class FedProxByHandler(florets.strategies.FedProx):
    method = PlainHandler


class HalvedFedAvg(florets.strategies.FedAvg):
    method = Halved


class MeanCLoVE(florets.strategies.CLoVE):
    method = Mean


class FailingFedAvg(florets.strategies.FedAvg):
    method = Failing


class UnwrittenFedAvg(florets.strategies.FedAvg):
    method = Unwritten


def broken(client: florets.Client) -> Any:
    """Look up what nobody sent; client 1 returns no number."""
    if client.key == "1":
        return client.reply(client.train(), size=float("nan"))
    return client.reply(client.train(), size=client.config["forgotten"])


class Broken(florets.Method[Any, Any]):
    handler = broken
    numbers = ("size",)


class BrokenFedAvg(florets.strategies.FedAvg):
    method = Broken
