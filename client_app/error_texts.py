"""Texts of errors that leave a node: those that the project or allowed code wrote, for others may quote its data."""

import dis
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from flwr.app import Context

from florets.client_app.session import consent_of, is_simulated
from florets.task.raised_in import raised_in
from florets.task.registry import OwnCodeFailed

log = logging.getLogger("florets")

_PACKAGES = {"pandas": "pandas", "sklearn": "scikit-learn", "scipy": "scipy", "PIL": "pillow"}
"""Packages that a node needs for some runs alone, by the name that is imported."""

_OURS = __name__.partition(".")[0]


@contextmanager
def own_texts_alone(context: Context) -> Iterator[None]:
    """Replace an unexpected error, on a real node; in one's own process it is passed on as it is.

    A library's text may hold what it was called with: "Target 7 is out of bounds", "could not convert string: 'x'".
    Flower sends the text to the server, where it is logged.

    Raises
    ------
    RuntimeError
        In place of another error than a ValueError that the project, or code that the owner allowed, has raised.
    """
    try:
        yield
    except Exception as error:  # whatever it is, its text must not reach the server unseen
        if _is_written_here(error, context):
            raise
        if is_simulated(context):
            # A bare NotImplementedError is no help to whoever wrote the code.
            error.args = error.args if str(error).strip() else (raised_in(error),)
            raise
        if isinstance(error, ModuleNotFoundError) and (lacks := _PACKAGES.get(str(error.name).partition(".")[0])):
            raise RuntimeError(f"this node lacks {lacks}, which the run needs; pip install {lacks} there") from error
        raise RuntimeError(
            f"{type(error).__name__}: unexpected error; its text may quote this node's data and is only in the "
            "node's log"
        ) from error


def _is_written_here(error: Exception, context: Context) -> bool:
    """Return whether an error is a ValueError that a `raise` of the project, or of allowed code, has raised.

    The innermost frame's module does not suffice: functions in C, such as `float`, have no frame, so that their
    errors come from the line that called them.
    """
    trace = error.__traceback__
    # What a user's own function said stands in ours.
    if not isinstance(error, ValueError) or isinstance(error, OwnCodeFailed) or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    if dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] != "RAISE_VARARGS":
        return False
    module = str(trace.tb_frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] == _OURS or consent_of(context).allows(module)
