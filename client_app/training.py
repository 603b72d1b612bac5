"""Local training, losses and tests of a message's models on one client's data, and the handlers of training."""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar, get_args

import numpy as np
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import Module

from florets.client_app.client import Client
from florets.client_app.session import State, session
from florets.task.client_data import TestedOn
from florets.task.randomness import Purpose
from florets.task.settings import SQUARED
from florets.task.training import dp_sgd, loop
from florets.task.training.linear import (
    LinearModels,
    exact_proximal,
    flat,
    linear_losses,
    linear_test,
    linear_update,
)
from florets.task.training.losses import Evaluated, count, evaluate, evaluated, in_parts, loss_vector, recorded
from florets.task.training.modules import load, on_host, state_of
from florets.task.training.newton import MOST_PARAMETERS, newton_update
from florets.task.training.objective import Objective
from florets.task.training.settings import MOST_DECIMALS, Quantise, Training
from florets.task.wire import kinds, noise
from florets.task.wire.codec import pack
from florets.task.wire.flower import filled
from florets.task.wire.records import Record, write_array
from florets.task.wire.replies import Losses, SelectedUpdate, TracedUpdate, Update
from florets.task.wire.sampled_noise import Declared, multiplier

_ABSURD = 1e4
"""Times the loss of a model whose outputs are all 0 from which on training has diverged."""
Loss = TypeVar("Loss", float, NDArray[np.float64])
Number = int | float | list[int] | list[float]
Arrays = dict[str, NDArray[Any]]


def model_losses(client: Client) -> NDArray[np.float64]:
    """Return the mean loss of each of the message's models on `loss_data`, with noise where the run asks for it."""
    if client.hides_records:
        asked, (x, y) = _declared(client), client.loss_data
        if not asked.losses:
            raise ValueError("the run declares no losses, so that they have no noise")
        states = map(client.on_device, client.states())
        means = loss_vector(client.module, states, x, y, client.loss, bound=noise.LOSS_CLIP)
        return noise.noised_losses(means, asked.loss_noise, len(x))
    losses = _model_losses(client)
    if kinds.PRIVACY not in client.config:
        return losses
    return noise.noised_losses(losses, client.number(kinds.PRIVACY_LOSS_NOISE))


def _model_losses(client: Client) -> NDArray[np.float64]:
    x, y = client.loss_data
    if client.config.get(kinds.BY_ERRORS):
        return np.array([_error(client, state, x, y) for state in client.states()])
    if (losses := client.prepared.losses) is not None:
        count(losses=x.shape[0] * len(losses))
        return losses
    if linear := client.linear:
        models = LinearModels.of([_in_numpy(state) for state in client.states()], linear)
        return reported(linear_losses(models, *flat(x, y), client.loss))
    return reported(loss_vector(client.module, map(client.on_device, client.states()), x, y, client.loss))


def _error(client: Client, state: State, x: Tensor, y: Tensor) -> float:
    """Return the fraction of samples that a model classifies wrongly, all where it has diverged."""
    load(client.module, client.on_device(state))
    loss, accuracy = evaluate(client.module, x, y, client.loss)
    if accuracy is None:
        raise ValueError(
            f"models can only be compared by errors in a classification, not with task.loss={client.loss}"
        )
    return 1.0 - accuracy if np.isfinite(loss) else 1.0


def result_on(client: Client, part: TestedOn, arrays: Mapping[str, NDArray[Any]] | None = None) -> Evaluated:
    """Return the test, on one part of the data, of a model that `trained` has just returned; None: the message's."""
    x, y = client.data.part(part)
    if part == "test" and arrays is None and (tested := client.prepared.tested) is not None:
        count(losses=x.shape[0])
        return tested
    if linear := client.linear:
        model = _in_numpy(client.states()[0]) if arrays is None else arrays
        return linear_test(LinearModels.of([model], linear), *flat(x, y), client.loss)
    module = client.module
    if arrays is None:
        load(module, client.on_device(client.states()[0]))
    return evaluated(module, x, y, client.loss)


def update(client: Client, state: State, purpose: Purpose = Purpose.LOCAL_TRAINING) -> dict[str, Any]:
    """Train a model, or take its gradient; return the fields of an `Update`. `purpose` names the draws."""
    arrays, mean = work(client, state, purpose)
    if client.hides_records:
        return {"values": packed(arrays), "train_loss": 0.0, "num_examples": client.num_examples}
    if kinds.PRIVACY in client.config:
        # How many examples it has, and how well they are learned, is the client's own.
        return {"values": packed(_noised(client, arrays, state)), "train_loss": 0.0, "num_examples": 1}
    return {"values": packed(arrays), "train_loss": mean, "num_examples": client.num_examples}


def work(client: Client, state: State, purpose: Purpose = Purpose.LOCAL_TRAINING) -> tuple[Arrays, float]:
    """Return the arrays that the server asked for, a gradient or a trained model, and the mean loss."""
    if client.hides_records:
        arrays, mean = _of_hidden_records(client, state, purpose), 0.0
    elif sends_gradient(client):
        arrays, mean = local_gradient(client, state)
    else:
        arrays, mean = trained(client, state, purpose)
    return _quantised(client, arrays, state), mean


def sends_gradient(client: Client) -> bool:
    """Return whether the server asks for a gradient, not for a trained model."""
    return client.config.get(kinds.REPLY, kinds.REPLY_MODEL) == kinds.REPLY_GRADIENT


def local_gradient(client: Client, state: State, objective: Objective | None = None) -> tuple[Arrays, float]:
    """Return a model's gradient on this client's data, or a batch of them, and the mean loss; see `loop.gradient`."""
    load(client.module, state)
    return loop.gradient(
        client.module,
        client.data.x_train,
        client.data.y_train,
        client.loss,
        int(client.number(kinds.GRADIENT_BATCH, 0)) or None,
        client.random(Purpose.GRADIENT_BATCH),
        client.objective if objective is None else objective,
        client.names(kinds.UNTRAINED),
    )


def trained(
    client: Client,
    state: State,
    purpose: Purpose | str = Purpose.LOCAL_TRAINING,
    objective: Objective | None = None,
    training: Training | None = None,
) -> tuple[Arrays, float]:
    """Train a model on this client's data; return its arrays, good until the next is loaded, and the mean loss."""
    # Computed together with other clients': only where the message asks for plain training, of which it has one.
    done = client.prepared.trained
    if (
        done is not None
        and not _has_diverged(client, done.arrays, done.mean)
        and purpose == Purpose.LOCAL_TRAINING
        and (objective is None or objective.is_plain)
    ):
        count(gradients=done.passes)
        return dict(done.arrays), done.mean
    objective, training = objective or client.objective, training or client.training
    if (solved := _by_solver(client, state, purpose, objective, training)) is not None:
        return solved
    arrays, mean = _by_steps(client, state, purpose, objective, training)
    if not _has_diverged(client, arrays, mean):
        return arrays, mean
    # A rate that is too high for this client's data would cost it its update, and the group one of its members.
    data = client.data
    (before,) = loss_vector(client.module, [client.on_device(state)], data.x_train, data.y_train, client.loss)
    while not mean <= before and client.halvings < kinds.MOST_HALVINGS:
        client.halvings += 1
        training = replace(training, learning_rate=training.learning_rate / 2)
        arrays, mean = _by_steps(client, state, purpose, objective, training)
    return arrays, mean


def _has_diverged(client: Client, arrays: Mapping[str, NDArray[Any]], mean: float) -> bool:
    """Return whether training ended without numbers, or far above the loss of a model that always says nothing."""
    if not all(np.isfinite(array).all() for array in arrays.values() if array.dtype.kind == "f"):
        return True
    if client.loss != "cross_entropy" and client.loss not in SQUARED:
        return not math.isfinite(mean)
    is_value = client.loss != "cross_entropy"
    scale = float(client.data.y_train.square().mean()) if is_value else math.log(client.task.num_outputs)
    return not mean <= _ABSURD * max(1.0, scale)


def _declared(client: Client) -> Declared:
    """Return the guarantee that the message declares for this client's records."""
    given: dict[str, Any] = {one.name: client.number(kinds.DECLARED + one.name) for one in fields(Declared)}
    if given["delta"] * client.num_examples >= 1:
        raise ValueError("privacy.delta: a node has too many records for it; give less than 1 / records")
    found = Declared(**{**given, "rounds": int(given["rounds"]), "losses": int(given["losses"])})
    # The server chooses the noise of losses; losses are answered before any round.
    if found.losses and not found.fits(found.releases(0.0, 0.0, 0, found.rounds, found.losses)):
        raise ValueError("the declared losses alone pass privacy.epsilon")
    return found


def _of_hidden_records(client: Client, state: State, purpose: Purpose) -> Arrays:
    """Return a model after DP-SGD, whose noise this client chooses by the guarantee that the run declares."""
    if sends_gradient(client):
        raise ValueError("averaging=gradients: not covered by privacy.kind=example; use averaging=models")
    module, data, training = client.module, client.data, client.training
    load(module, client.on_device(state))
    objective, clip = client.objective, client.number(kinds.PRIVACY_CLIP)
    if not dp_sgd.LEAST_CLIP <= clip < math.inf:
        raise ValueError(f"{kinds.PRIVACY_CLIP}={clip}: must be at least {dp_sgd.LEAST_CLIP:g}")
    noise_of, rng = multiplier(_declared(client), *training.drawing(client.num_examples)), client.random(purpose)
    dp_sgd.train(module, data.x_train, data.y_train, client.loss, training, clip, noise_of, rng, objective)
    return values_of(module)


def trains_by_newton(client: Client) -> bool:
    """Return whether local training is Newton's steps: as the server asks, on a linear model of flat inputs."""
    if client.training.solver != "newton" or client.linear is None:
        return False
    x = client.data.x_train
    return x.dim() == 2 and (x.shape[1] + 1) * client.task.num_outputs <= MOST_PARAMETERS


def _by_solver(
    client: Client, state: State, purpose: Purpose | str, objective: Objective, training: Training
) -> tuple[Arrays, float] | None:
    """Solve a proximal problem in closed form, or take damped Newton steps, where that is asked for."""
    data, mu = client.data, objective.proximal_mu
    if client.number(kinds.EXACT_PROXIMAL, 0) and mu and training.has_closed_form:
        load(client.module, state)
        mean = exact_proximal(client.module, data.x_train, data.y_train, client.loss, mu)
        if mean is not None:
            return values_of(client.module), mean
    mu = replace(objective, weights=None).proximal_mu
    linear = client.linear if trains_by_newton(client) else None
    if linear is None or mu is None:
        return None
    weights = None if objective.weights is None else objective.weights.numpy()
    start, records = _in_numpy(state), flat(data.x_train, data.y_train)
    arrays, mean, terms = newton_update(linear, start, *records, client.loss, training, mu, weights)
    # A proximal term is no part of the loss that the group's model minimises, and needs no Hessian of the server's.
    client.second_order = terms if purpose == Purpose.LOCAL_TRAINING and not mu else None
    return arrays, mean


def _by_steps(
    client: Client, state: State, purpose: Purpose | str, objective: Objective, training: Training
) -> tuple[Arrays, float]:
    """Take the steps of the optimiser; of a linear model those of plain gradient descent in NumPy."""
    data, module, mu = client.data, client.module, objective.proximal_mu
    linear = client.linear if training.takes_full_steps(client.num_examples) else None
    if linear is not None and mu is not None:
        records = flat(data.x_train, data.y_train)
        return linear_update(linear, _in_numpy(state), *records, client.loss, training, mu)
    load(module, client.on_device(state))
    rng = client.random(purpose)
    mean = loop.train(module, data.x_train, data.y_train, client.loss, training, rng, objective)
    return values_of(module), mean


def _in_numpy(state: State) -> Arrays:
    return {name: value.numpy() for name, value in state.items()}


def training_fields(client: Client) -> dict[str, Any]:
    """Return what an `Update` says of the training just done: halvings; gradient and Hessian, where asked for."""
    terms = client.second_order
    if kinds.PRIVACY not in client.config and client.halvings:
        return {"halvings": client.halvings}
    if terms is None or not client.config.get(kinds.SECOND_ORDER) or not client.shares_statistics:
        return {}
    if kinds.PRIVACY in client.config:
        raise ValueError("gradients and Hessians have no noise; this run is one with privacy.kind")
    return {"gradient": terms.gradient, "hessian": terms.hessian}


def reply(arrays: ArrayRecord | None, metrics: Mapping[str, Number], **others: ArrayRecord) -> RecordDict:
    """Return a reply of arrays, numbers and further array records by name."""
    records: dict[str, Record] = {kinds.METRICS: filled(MetricRecord(), metrics), **others}
    if arrays is not None:
        records[kinds.ARRAYS] = arrays
    return filled(RecordDict(), records)


def packed(arrays: Mapping[str, NDArray[Any] | Array]) -> ArrayRecord:
    """Return arrays as they are sent; their values are copied."""
    return filled(
        ArrayRecord(),
        {name: values if isinstance(values, Array) else write_array(values) for name, values in arrays.items()},
    )


def reported(losses: Loss) -> Loss:
    """Return losses as they may be sent: diverged losses are clipped to a sentinel."""
    if isinstance(losses, float) and 0 < losses < kinds.DIVERGED:
        return float(losses)
    # Written so that a NaN, of which no comparison holds, is the worst as well.
    clipped = np.where(np.less(losses, kinds.DIVERGED), np.maximum(losses, 0.0), kinds.DIVERGED)
    return clipped if isinstance(losses, np.ndarray) else float(clipped)


def quantise(values: NDArray[Any], how: str, digits: int) -> NDArray[Any]:
    """Keep so many decimals of each value, by `how`: ``none``, ``round`` or ``truncate``; counters stay as they are.

    Source: CFL-GP, App. E.1, Table 7, which speaks of truncation; its figures fit rounding.
    """
    if how not in get_args(Quantise):
        raise ValueError(f"quantise={how!r} is unknown: choose one of {', '.join(get_args(Quantise))}.")
    if not 0 <= digits <= MOST_DECIMALS:
        raise ValueError(f"{kinds.QUANTISE_DIGITS}={digits}: must be from 0 to {MOST_DECIMALS}.")
    if how == "none" or values.dtype.kind != "f":
        return values
    scale = 10.0**digits
    # In float64, where scaling a float32 neither overflows nor moves it across a decimal.
    scaled = values.astype(np.float64) * scale
    kept = np.rint(scaled) if how == "round" else np.trunc(scaled)
    return (kept / scale).astype(values.dtype)


def changes(arrays: Mapping[str, NDArray[Any]], state: State) -> Arrays:
    """Return what training changed in a model that began as `state`; counters and flags stay as they are."""
    # Booleans cannot be subtracted, and no difference of counters is ever used.
    return {name: array - state[name].numpy() if array.dtype.kind == "f" else array for name, array in arrays.items()}


def _quantised(client: Client, arrays: Arrays, state: State) -> Arrays:
    """Return gradients, or what training changed in a model, with the decimals that the server asks for."""
    how, digits = str(client.config.get(kinds.QUANTISE, "none")), int(client.number(kinds.QUANTISE_DIGITS, 0))
    if how == "none":
        return arrays
    values = client.names(kinds.UNTRAINED) if sends_gradient(client) else arrays.keys()
    sent = {name: quantise(array, how, digits) for name, array in arrays.items() if name not in values}
    for name, change in changes({name: arrays[name] for name in values}, state).items():
        sent[name] = state[name].numpy() + quantise(change, how, digits) if change.dtype.kind == "f" else change
    return {name: sent[name] for name in arrays}


def _noised(client: Client, arrays: Arrays, state: State) -> Arrays:
    """Return a gradient, or a model by its change from `state`, clipped to a norm and noised by this client."""
    start = {name: np.zeros(1) if sends_gradient(client) else state[name].numpy() for name in arrays}
    change = np.concatenate([(arrays[name] - start[name].astype(np.float64)).ravel() for name in arrays])
    bound = client.number(kinds.PRIVACY_CLIP)
    change = noise.within(change, bound) + noise.gaussian(len(change), client.number(kinds.PRIVACY_NOISE) * bound)
    parts = np.split(change, np.cumsum([values.size for values in arrays.values()])[:-1])
    return {
        name: (start[name] + part.reshape(values.shape)).astype(values.dtype)
        for (name, values), part in zip(arrays.items(), parts, strict=True)
    }


def values_of(module: Module) -> Arrays:
    """Return a model's arrays, which are the module's own memory where it computes on the CPU."""
    state = state_of(module)
    values = on_host(*(value.detach() for value in state.values()))
    return {name: value.numpy() for name, value in zip(state, values, strict=True)}


def train(client: Client) -> RecordDict:
    """Train the model that came, or the kept one that is named, and return it or its gradient.

    Source: CLoVE Alg. 1, l. 19 and 21; stability: section 3, "Checking for cluster stability".
    """
    if kinds.MODEL_INDEX in client.config:
        state = session.states(session.kept(client.config))[int(client.number(kinds.MODEL_INDEX))]
    else:
        state = client.states()[0]
    parts = int(client.number(kinds.STEP_LOSSES, 0))
    if parts:
        if kinds.PRIVACY in client.config:
            raise ValueError("the losses of single steps have no noise; this run is one with privacy.kind=local")
        with recorded() as losses:
            own = update(client, state)
        return pack(TracedUpdate, **own, **training_fields(client), step_losses=reported(in_parts(losses, parts)))
    return pack(Update, **update(client, state), **training_fields(client))


def train_select(client: Client) -> RecordDict:
    """Choose the model with the lowest loss, see `model_losses`, then do as `train`.

    Source: IFCA Alg. 1, l. 7 and 8.
    """
    losses = model_losses(client)
    chosen = int(losses.argmin())
    own = update(client, client.states()[chosen])
    return pack(SelectedUpdate, **own, **training_fields(client), model=chosen, losses=losses)


def losses(client: Client) -> RecordDict:
    """Return the mean loss of each model, see `model_losses`, and whether this process has kept the models.

    Source: CLoVE Alg. 1, l. 7 and 8.
    """
    return pack(
        Losses,
        losses=model_losses(client),
        num_examples=1 if kinds.PRIVACY in client.config and not client.hides_records else client.num_examples,
        kept=session.keep(client.config, client.arrays(), client.context),
    )
