"""`ClientSide`: all that a worker process needs of the ClientApp, which the server's code does not import."""

from collections.abc import Callable
from dataclasses import dataclass

from flwr.clientapp import ClientApp

from florets.engines.local_grid import InBlocks
from florets.engines.messages import Sent
from florets.task.task import Task


@dataclass(frozen=True)
class ClientSide:
    """The ClientApp of this process and how its work is shared out.

    Parameters
    ----------
    app
        Handles every message.
    in_blocks
        Computes the work of several clients together.
    cut_blocks
        Returns the places of the messages that are answered alone, and those of each block of at most a number.
    adopt
        Lets this process serve simulated clients from a task that it is handed; None: no more.
    """

    app: ClientApp
    in_blocks: InBlocks
    cut_blocks: Callable[[Sent, int], tuple[list[int], list[list[int]]]]
    adopt: Callable[[Task | None], None]


LoadClientSide = Callable[[], ClientSide]
"""A function that another process can import by its name."""
