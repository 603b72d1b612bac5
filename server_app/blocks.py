"""Blocks of clients on the in-process engine: the choice of their size, and when to speak of them."""

from dataclasses import replace

from flwr.serverapp import Grid

from florets.conf.problems import ConfigError
from florets.conf.schema import Config
from florets.server_app.local_grid import LocalGrid
from florets.task.device import find_device
from florets.task.task import Task
from florets.task.training.vectorised import block_size

_MANY_CLIENTS = 50
"""From here on the seconds that blocks save are worth a line."""


def choose_blocks(grid: Grid, config: Config, task: Task) -> tuple[Config, str]:
    """Let a grid compute as many clients' work together as `batch_clients` says.

    Returns
    -------
    Config, str
        The configuration with the choice in place of `auto`: the results depend on it, so that a run that goes on
        must not choose again. And a line for the screen, empty where there is nothing to say.

    Raises
    ------
    ConfigError
        If work is to be computed together on an engine that cannot do so.
    """
    asked = config.batch_clients
    able = isinstance(grid, LocalGrid) and grid.takes_blocks
    if asked == "off":
        if isinstance(grid, LocalGrid):
            grid.block_size = 1
        # Only the process that computes needs to have the device.
        if not (able and config.num_clients >= _MANY_CLIENTS and _best(config, task) > 1):
            return config, ""
        # On a GPU nothing was measured, and nothing is promised.
        gain = "faster" if find_device(config.device).type == "cpu" else "fewer calls of the GPU"
        hint = f"batch_clients=auto would compute the work of several clients at once: {gain}, and equal to rounding"
        return config, hint
    if not isinstance(grid, LocalGrid) or grid.in_blocks is None:
        raise ConfigError([f"batch_clients={asked}: needs the in-process engine; leave it out, or use engine=local."])
    if not able:
        raise ConfigError(
            [f"batch_clients={asked}: the ClientApp has mods, which handle each message by itself; leave it out."]
        )
    size = _best(config, task) if asked == "auto" else asked
    grid.block_size = size
    chosen = replace(config, batch_clients="off" if size < 2 else size)
    if asked != "auto":
        return chosen, ""
    why = "this model's work is done for each client alone" if size < 2 else f"up to {size} clients at once"
    return chosen, f"batch_clients=auto: {why}"


def _best(config: Config, task: Task) -> int:
    return block_size(task.build_model(), find_device(config.device), task.input_shape)
