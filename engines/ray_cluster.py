"""The Ray cluster of `engine=ray`: the connection to it, and its CPUs."""

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from florets.conf.extras import require
from florets.conf.problems import ConfigError
from florets.engines.worker_count import num_workers
from florets.task.temporary import held_folder

RAY_ADDRESS = "RAY_ADDRESS"
"""Ray's own variable: the cluster to connect to, ``auto``, or `OWN`."""

OWN = "local"
"""Ray's word for no cluster, but a Ray of the process's own."""

_PROBE_SECONDS = 5.0
_ALIVE = "/ray.rpc.NodeInfoGcsService/CheckAlive"
"""An empty request to it is answered by every Ray head node."""

_LEAVE_OUT = (
    "give the address that `ray start --head` printed (port 6379 if none was given), or leave ray_address out for a "
    "private Ray on this machine."
)


def check_address(address: str) -> None:
    """Raise ConfigError where Ray is not installed, or does not answer at an address as `connected` takes it."""
    require("ray", "engine=ray")
    if address != "auto":
        if ":" in address:
            check_alive(address, f"ray_address={address}", _LEAVE_OUT)
    elif (named := os.environ.get(RAY_ADDRESS, "")) == OWN:
        # Ray would start one, open to other machines, without a word.
        raise ConfigError(
            f"ray_address=auto: {RAY_ADDRESS}={OWN} asks for no cluster; unset it, or leave ray_address out."
        )
    elif named not in ("", "auto"):
        _check_named(named, _LEAVE_OUT)
    else:
        _check_latest("ray_address=auto", "leave ray_address out for a private Ray")


def check_simulation() -> None:
    """Raise ConfigError where the environment names a Ray cluster for Flower's simulation that does not answer."""
    if (named := os.environ.get(RAY_ADDRESS)) == "auto":
        _check_latest(f"{RAY_ADDRESS}=auto", f"unset {RAY_ADDRESS}")
    elif named:
        _check_named(named, f"give the address that `ray start --head` printed, or unset {RAY_ADDRESS}.")


def check_alive(address: str, given: str, remedy: str) -> None:
    """Raise ConfigError where no Ray head node answers, with what the user has given and can do."""
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
            "the process at that address is not a Ray head node"
            if code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL)
            else "nobody answers there"
        )
        raise ConfigError(f"{given}: {reason}; {remedy}") from None


def _check_named(named: str, remedy: str) -> None:
    # Ray's own client protocol, or `OWN`, is no head node's address.
    if ":" in named and "://" not in named:
        check_alive(named, f"{RAY_ADDRESS}={named}", remedy)


def _check_latest(given: str, otherwise: str) -> None:
    if latest := _latest():
        check_alive(
            latest,
            f"{given} ({latest})",
            f"the cluster that was started last on this machine has ended unexpectedly; start one with `ray start "
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


_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # What Ray would print of other processes in this one: pages where a node is lost, which we say in a line.
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Set before Ray is imported, where the user has not set them."""

_THIS_MACHINE_ALONE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""The same for a Ray of its own: else it listens on the machine's address, to whoever can reach that."""

_SETTLED, _NONE_FREE = 2.0, 15.0
"""Seconds after which CPUs in use are taken to be in use by others; the same where no CPU is free at all."""

_SHORT_PATH = Path("/tmp")
"""Preferred parent of the folder of a separate Ray: a socket's path has a hundred characters at most."""


def num_actors(workers: int | str | None, num_clients: int, cpus: int, free: int) -> int:
    """Return the number of actors that `workers` stands for; ConfigError for more than CPUs or clients, or none free.

    `cpus` and `free` are the CPUs of the cluster's nodes, and how many of them nobody uses.
    """
    if isinstance(workers, int):
        if workers > cpus:
            raise ConfigError(
                f"workers={workers}: the Ray cluster has {cpus} CPUs, one for each; use workers of at most {cpus}."
            )
        return num_workers(workers, num_clients)
    if free < 1:
        raise ConfigError(
            f"engine=ray: the Ray cluster has no free CPU (of {cpus}); wait until others have finished, or give "
            f"workers=<number> to wait for them until start_timeout."
        )
    return min(free, num_clients)


@contextmanager
def connected(address: str, wait: bool = True) -> Iterator[tuple[int, int]]:
    """Connect to a cluster, or start a Ray of this machine's own, and disconnect at the end; ConfigError without one.

    Yields the CPUs of its nodes, and how many of them nobody uses.

    Parameters
    ----------
    address
        ``auto``, ``<host>:<port>``, or nothing: a Ray of its own, which ends with this block. Where this process is
        connected already, that connection is used, and stays.
    wait
        Wait for CPUs that a run which has just ended is about to leave.
    """
    for name, value in (_QUIET if address else _QUIET | _THIS_MACHINE_ALONE).items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        yield _cpus(ray, wait)
        return
    own = signal.getsignal(signal.SIGTERM)
    # In the usual folder its logs would stay.
    with nullcontext() if address else held_folder("ray", _SHORT_PATH if _SHORT_PATH.is_dir() else None) as folder:
        try:
            try:
                quiet = {"logging_level": logging.CRITICAL, "log_to_driver": False}
                if address:
                    ray.init(address=address, **quiet)
                else:
                    ray.init(address="local", include_dashboard=False, _temp_dir=str(folder), **quiet)
            # Whatever Ray raises: another version of Ray or Python there, no node of the cluster here, no memory.
            except Exception as error:
                raise ConfigError(_refusal(address, error)) from None
            finally:
                # Ray has put its own reaction to SIGTERM in the place of ours.
                if threading.current_thread() is threading.main_thread() and own is not None:
                    signal.signal(signal.SIGTERM, own)
            yield _cpus(ray, wait)
        finally:
            ray.shutdown()


def _cpus(ray: Any, wait: bool) -> tuple[int, int]:
    total = sum(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])
    # Ray learns only after a moment that a run that has just ended uses its CPUs no more.
    since = time.monotonic()
    while (free := int(ray.available_resources().get("CPU", 0))) < total and wait:
        if time.monotonic() - since >= (_SETTLED if free else _NONE_FREE):
            break
        time.sleep(0.1)
    return total, free


def _refusal(address: str, error: Exception) -> str:
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    if not address:
        return f"engine=ray: Ray cannot start on this machine ({first}); use engine=local."
    if isinstance(error, ConnectionError) and address == "auto":
        return (
            "ray_address=auto: no Ray runs on this machine; start it with `ray start --head` (further machines: "
            "`ray start --address=<host:port>`), or leave ray_address out for a private Ray."
        )
    return (
        f"ray_address={address}: Ray refuses the connection ({first}). This machine must be a node of the cluster "
        f"(`ray start --address={address}`), with the same versions of Ray and Python."
    )
