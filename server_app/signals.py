"""Signals that end a command in order, as Ctrl-C does: SIGTERM and SIGHUP."""

import signal


def end_in_order() -> list[int]:
    """Let SIGTERM and SIGHUP interrupt the main thread, from which alone this can be called.

    Returns
    -------
    list of int
        The number of the signal that came, once one has; empty before.
    """
    came = list[int]()

    def interrupt(number: int, _: object) -> None:
        # A second one ends the process at once.
        signal.signal(number, signal.SIG_DFL)
        came.append(number)
        raise KeyboardInterrupt

    for name in ("SIGTERM", "SIGHUP"):
        # `nohup` has the hang-up ignored, and some systems have none.
        if (number := getattr(signal, name, None)) and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    return came
