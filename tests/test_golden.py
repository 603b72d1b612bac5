"""Golden results: the runs of tests/golden_runs.py give the results stored in tests/golden.zip."""

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Context, Message

from florets.client_app.app import app
from florets.conf.schema import Config
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_strategy
from florets.strategies import STRATEGIES
from florets.task.task import Task
from florets.task.wire import kinds, leaving
from tests.flower_tools import on_the_wire
from tests.golden_runs import SETTINGS, TOLERANCE, Golden, differences, digest, environment, play, read, stored

# At least one of each strategy; the tests of each have its other ways to compute, and `make slow` the other runs.
QUICK = {
    "digits-clove-partial", "digits-ifca-gradients", "digits-cfl_gp-partial", "digits-two_phase",
    "digits-fedavg-batch-norm", "digits-fedprox", "digits-local", "digits-oracle-gradients", "digits-one_shot",
    "digits-k_fed-partial", "digits-discovery", "digits-cfl_s", "digits-fesem", "digits-flexcfl", "digits-pacfl",
    "digits-stocfl", "digits-fedclust", "digits-sr_fca", "digits-flux", "digits-fedgwc", "digits-fedem",
    "digits-feddrift", "digits-fedrc", "digits-fedsoft", "digits-ditto", "digits-per_fedavg", "digits-fedproto",
    "digits-fedala", "digits-fedpac",
}  # fmt: skip

OPTIONAL = {leaving.FACTS, leaving.EVALUATIONS, leaving.LABELS, leaving.LOSS_VECTORS, leaving.CLASS_SHARES}


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SETTINGS]
)
def test_a_run_gives_its_golden_results(name: str) -> None:
    sent: set[str] = set()
    declared: set[str] = set()

    def watched(message: Message, context: Context) -> Message:
        # As Flower does it, so that what a message or a client's state loses on the way shows here.
        message.content, context.state = on_the_wire(message.content), on_the_wire(context.state)
        reply, config = app(message, context), message.content[kinds.CONFIG]
        reply.content = on_the_wire(reply.content)
        sent.update(
            leaving.left(leaving.message_name(message.metadata.message_type, message.content), config, reply.content)
        )
        return reply

    def grid_of(config: Config, task: Task) -> LocalGrid:
        declared.update(build_strategy(config, task).federation.leaving)
        return LocalGrid(watched, config.num_clients)

    lines = differences(read(name), play(name, grid_of))
    # What a run makes leave its clients is what its strategy says, and what depends on settings.
    assert declared <= sent <= declared | OPTIONAL, "correct `leaving` of the strategy"
    # A deliberate change of results: python -m tests.golden_runs --write NAME ...
    assert not lines, "\n".join([f"golden run {name}:", *lines])


def test_of_every_strategy_a_run_is_in_the_default_suite() -> None:
    assert SETTINGS.keys() >= QUICK
    for strategy in STRATEGIES:
        of_it = {name for name in SETTINGS if strategy in name.split("-")}
        assert not of_it or of_it & QUICK, f"no golden run of {strategy} is in QUICK"


def test_every_golden_run_is_stored_and_nothing_else() -> None:
    assert stored() == {f"{name}{end}" for name in SETTINGS for end in (".json", ".npz")}


STORED = read("mixed_regression-a-two_phase")
ENTRY = "0/1.weight"
HERE = environment()
ELSEWHERE = {**HERE, "torch capability": "another"}


def changed(by: float, where: dict[str, str]) -> Golden:
    """Return the stored results as if the largest weight of model 0 had come out otherwise."""
    array = STORED.arrays[ENTRY].copy()
    largest = np.unravel_index(np.abs(array).argmax(), array.shape)
    array[largest] += np.float32(by)
    return replace(STORED, environment=where, arrays={**STORED.arrays, ENTRY: array})


def here(golden: Golden) -> Golden:
    """Return the results as if they were stored on this machine, with digests that fit."""
    digests = {entry: digest(array) for entry, array in golden.arrays.items()}
    return replace(golden, environment=HERE, digests=digests)


def test_the_last_bit_counts_on_the_same_kind_of_machine_alone() -> None:
    largest = np.abs(STORED.arrays[ENTRY]).max()
    ulp = float(np.spacing(largest))
    assert differences(here(STORED), changed(0.0, HERE)) == []
    (line,) = differences(here(changed(ulp, HERE)), changed(0.0, HERE))
    assert line.startswith(f"array {ENTRY}: 1 of 100 values differ, largest difference {ulp:.3g}")
    assert differences(here(changed(ulp, HERE)), changed(0.0, ELSEWHERE)) == []
    line, machine = differences(here(changed(4 * TOLERANCE, HERE)), changed(0.0, ELSEWHERE))
    assert f"largest difference {4 * TOLERANCE:.1g}" in line
    assert "torch capability" in machine
