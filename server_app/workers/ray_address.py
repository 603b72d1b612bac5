"""The address of a Ray cluster, looked at before Ray is started: Ray itself would try for minutes."""

import os

from florets.conf.problems import ConfigError
from florets.server_app.extras import require

_RAY_ADDRESS = "RAY_ADDRESS"
_PROBE_SECONDS = 5.0
_ALIVE = "/ray.rpc.NodeInfoGcsService/CheckAlive"
"""An empty request to it is answered by every Ray head node."""


def check_address(address: str) -> None:
    """Refuse `engine=ray` where Ray is not installed, or does not answer at the address that is given.

    Parameters
    ----------
    address
        As `florets.server_app.workers.ray_cluster.connected` takes it.

    Raises
    ------
    ConfigError
        In these cases.
    """
    require("ray", "engine=ray")
    where = os.environ.get(_RAY_ADDRESS, "") if address == "auto" else address
    if ":" in where:
        check_alive(where, f"{_RAY_ADDRESS}={where}" if address == "auto" else f"ray_address={where}")


def check_alive(address: str, given: str) -> None:
    """Look whether a Ray head node answers: Ray itself would try for minutes.

    Parameters
    ----------
    given
        What the user has set.

    Raises
    ------
    ConfigError
        If none does.
    """
    import grpc

    if os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true"):
        # Its certificates are Ray's own affair.
        return
    try:
        with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
            channel.unary_unary(_ALIVE)(b"", timeout=_PROBE_SECONDS)
    except grpc.RpcError as error:
        code = error.code()
        # A head node that demands a token is there.
        if code == grpc.StatusCode.UNAUTHENTICATED:
            return
        reason = (
            "what answers there is no Ray head node"
            if code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
            else "nobody answers there"
        )
        raise ConfigError(
            [
                f"{given}: {reason}; give the address that `ray start --head` printed (port 6379 if none was given), "
                "or leave ray_address out for a Ray of its own on this machine."
            ]
        ) from error
