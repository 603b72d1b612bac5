"""The address of a Ray cluster, looked at before Ray is started: Ray itself would try for minutes, or for ever."""

import os

from florets.conf.extras import require
from florets.conf.problems import ConfigError

NAME = "RAY_ADDRESS"
"""Ray's own variable: the cluster to connect to, ``auto``, or `OWN`."""

OWN = "local"
"""Ray's word for no cluster, but a Ray of the process's own."""

_PROBE_SECONDS = 5.0
_ALIVE = "/ray.rpc.NodeInfoGcsService/CheckAlive"
"""An empty request to it is answered by every Ray head node."""

_LEAVE_OUT = (
    "give the address that `ray start --head` printed (port 6379 if none was given), or leave ray_address out for a "
    "Ray of its own on this machine."
)


def check_address(address: str) -> None:
    """Refuse `engine=ray` where Ray is not installed, or does not answer at the address that is given.

    Parameters
    ----------
    address
        As `florets.engines.ray_cluster.connected` takes it.

    Raises
    ------
    ConfigError
        In these cases.
    """
    require("ray", "engine=ray")
    if address != "auto":
        if ":" in address:
            check_alive(address, f"ray_address={address}", _LEAVE_OUT)
    elif (named := os.environ.get(NAME, "")) == OWN:
        # Ray would start one, open to other machines, without a word.
        raise ConfigError(
            [f"ray_address=auto: {NAME}={OWN} asks for no cluster; unset it, or leave ray_address out."]
        )
    elif named not in ("", "auto"):
        _check_named(named, _LEAVE_OUT)
    else:
        _check_latest("ray_address=auto", "leave ray_address out for a Ray of its own")


def check_simulation() -> None:
    """Refuse Flower's simulation where the environment names a Ray cluster that does not answer.

    Raises
    ------
    ConfigError
        In this case.
    """
    if (named := os.environ.get(NAME)) == "auto":
        _check_latest(f"{NAME}=auto", f"unset {NAME}")
    elif named:
        _check_named(named, f"give the address that `ray start --head` printed, or unset {NAME}.")


def check_alive(address: str, given: str, remedy: str) -> None:
    """Look whether a Ray head node answers.

    Parameters
    ----------
    given
        What the user has set.
    remedy
        What the user can do where none does.

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
        raise ConfigError([f"{given}: {reason}; {remedy}"]) from error


def _check_named(named: str, remedy: str) -> None:
    # Ray's own client protocol, or `OWN`, is no head node's address.
    if ":" in named and "://" not in named:
        check_alive(named, f"{NAME}={named}", remedy)


def _check_latest(given: str, otherwise: str) -> None:
    if latest := _latest():
        check_alive(
            latest,
            f"{given} ({latest})",
            "the cluster that was started last on this machine has ended without a word; start one with `ray start "
            f"--head`, or {otherwise}.",
        )


def _latest() -> str:
    """Return the address that Ray itself would go by; nothing where it would find none."""
    from ray._private import services

    # Ray remembers what it found: since then that cluster may have ended, and another begun.
    services.find_gcs_addresses.cache_clear()
    try:
        return str(services.get_ray_address_from_environment("auto", None))
    except ConnectionError:
        return ""
