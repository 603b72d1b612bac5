"""The exchange of descriptions: whose a key is."""

from types import SimpleNamespace

import pytest
from flwr.app import ConfigRecord

from florets.strategies.base import describing
from florets.strategies.base.describing import describe_sites
from florets.strategies.base.federation import Federation
from florets.task.data.tables.description import Description


@pytest.mark.parametrize(("names", "kept"), [(["", "north", "", ""], 2), (["", "", "", ""], 1)])
def test_of_two_nodes_with_one_key_the_registered_one_holds_it(
    monkeypatch: pytest.MonkeyPatch, names: list[str], kept: int
) -> None:
    nodes = [SimpleNamespace(node_id=place + 1, name=name, public_key=b"") for place, name in enumerate(names)]
    monkeypatch.setattr(Federation, "wait_for_nodes", lambda *_: [node.node_id for node in nodes])
    monkeypatch.setattr(describing, "new_message", lambda *_: None)

    def exchange(_grid, requests, *_, **__):  # type: ignore[no-untyped-def]
        ok = [(one.key, ("north", Description("archive", place + 2, 1))) for place, one in enumerate(requests)]
        return SimpleNamespace(ok=ok)

    monkeypatch.setattr(describing, "exchange", exchange)
    grid = SimpleNamespace(get_nodes=lambda: nodes)
    found = describe_sites(grid, ConfigRecord(), 1, None)  # type: ignore[arg-type]
    assert found["north"].records == kept + 1
