"""`engine=flwr` has a Ray of its own, or the cluster that RAY_ADDRESS names, once a head node answers there."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from florets.conf.problems import ConfigError
from florets.engines import flower_processes
from florets.engines.flower_run import _ALIVE, SuperLink, _check_cluster


@contextmanager
def listening(handler: grpc.RpcMethodHandler | None = None) -> Iterator[str]:
    """Yield the address of a server with a head node's method, or without it."""
    server = grpc.server(ThreadPoolExecutor(1))
    service, method = _ALIVE.strip("/").split("/")
    if handler is not None:
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


def test_an_address_without_a_head_node_is_refused_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listening(grpc.unary_unary_rpc_method_handler(lambda request, context: b"")) as address:
        monkeypatch.setenv("RAY_ADDRESS", address)
        _check_cluster()
    with listening() as address:
        for wrong in (address, "127.0.0.1:1", "auto", "ray://127.0.0.1:1"):
            monkeypatch.setenv("RAY_ADDRESS", wrong)
            with pytest.raises(ConfigError, match=f"RAY_ADDRESS={wrong}: no Ray head node answers there; .* unset"):
                _check_cluster()
    for none in ("local", ""):
        monkeypatch.setenv("RAY_ADDRESS", none)
        _check_cluster()


def test_the_simulation_has_a_ray_of_its_own_unless_a_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_processes, "start", lambda *arguments: None)
    monkeypatch.setattr(flower_processes, "wait_for_port", lambda *arguments, **more: True)
    monkeypatch.setattr(flower_processes, "end", lambda process: None)
    for given, found in ((None, "local"), ("", "local"), ("node:6379", "node:6379")):
        if given is None:
            monkeypatch.delenv("RAY_ADDRESS", raising=False)
        else:
            monkeypatch.setenv("RAY_ADDRESS", given)
        with SuperLink() as superlink:
            assert superlink.environment["RAY_ADDRESS"] == found
