"""The address of a Ray cluster: who answers there, and what a run goes by where none is given."""

import functools
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from florets.conf import extras
from florets.conf.problems import ConfigError
from florets.engines import flower_processes
from florets.engines.flower_run import SuperLink
from florets.engines.ray_cluster import check_address, check_simulation


def test_an_address_without_a_head_node_is_refused_before_ray_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extras, "_is_installed", lambda module: True)
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with pytest.raises(ConfigError, match=rf"ray_address=127.0.0.1:{port}: what answers there is no Ray head node"):
        check_address(f"127.0.0.1:{port}")
    server.stop(None).wait()
    with pytest.raises(ConfigError, match=rf"ray_address=127.0.0.1:{port}: nobody answers there; .* `ray start"):
        check_address(f"127.0.0.1:{port}")
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(ConfigError, match=rf"RAY_ADDRESS=127.0.0.1:{port}: nobody answers"):
        check_address("auto")
    with pytest.raises(ConfigError, match=rf"RAY_ADDRESS=127.0.0.1:{port}: nobody answers there; .* unset RAY"):
        check_simulation()
    check_address("")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    with pytest.raises(ConfigError, match="RAY_ADDRESS=local asks for no cluster; unset it"):
        check_address("auto")
    for no_head_node in ("local", "ray://127.0.0.1:1", ""):
        monkeypatch.setenv("RAY_ADDRESS", no_head_node)
        check_simulation()


def test_a_cluster_that_was_killed_stops_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    services = pytest.importorskip("ray._private.services", reason="Ray is not installed")
    from ray._common.utils import get_ray_address_file

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    # The folder in which Ray notes the cluster that was started last, and no process of another one.
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(services, "find_gcs_addresses", functools.cache(frozenset))
    check_address("auto")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    note = Path(get_ray_address_file(None))
    note.parent.mkdir()
    note.write_text(address)
    with pytest.raises(ConfigError, match=rf"ray_address=auto \({address}\): nobody answers there; the cluster"):
        check_address("auto")
    check_simulation()
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    with pytest.raises(ConfigError, match=rf"ray_address=auto \({address}\): nobody answers there; the cluster"):
        check_address("auto")
    with pytest.raises(ConfigError, match=rf"RAY_ADDRESS=auto \({address}\): nobody answers there; .*or unset RAY"):
        check_simulation()


def test_flowers_simulation_has_a_ray_of_its_own_unless_a_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flower_processes, "start", lambda *arguments: None)
    monkeypatch.setattr(flower_processes, "wait_for_http", lambda *arguments: True)
    monkeypatch.setattr(flower_processes, "end", lambda process: None)
    for given, found in ((None, "local"), ("", "local"), ("node:6379", "node:6379")):
        if given is None:
            monkeypatch.delenv("RAY_ADDRESS", raising=False)
        else:
            monkeypatch.setenv("RAY_ADDRESS", given)
        with SuperLink() as superlink:
            assert superlink.environment["RAY_ADDRESS"] == found
