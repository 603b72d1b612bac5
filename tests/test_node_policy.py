"""The policy and the log of a node: what leaves is named, forbidden, counted and written down."""

import hashlib
import importlib
import json
import re
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from florets.client_app.session import session
from florets.commands.main import main
from florets.commands.node import command
from florets.strategies.base.report import State
from florets.strategies.settings import Settings
from florets.task import node_log
from florets.task.node_log import NodeLog
from florets.task.wire import flower, kinds
from florets.task.wire.codec import form_of
from florets.task.wire.leaving import FACTS, LEAVING, NAMES, asked_for
from florets.zoo.fedala import EVALUATE_MIXED
from florets.zoo.k_fed import KMEANS
from tests.test_caps import sent
from tests.test_check import write

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "strategies", ROOT / "zoo")
PATHS = re.compile(r'"(florets\.(?:strategies|zoo)\.([a-z_0-9]+)(?:\.client)?):([a-z_0-9]+)"')


@pytest.fixture
def node(tmp_path: Path) -> dict[str, Any]:
    """Return the node config of a real node with eight samples."""
    np.savez(tmp_path / "data.npz", x=np.eye(8, 3), y=np.arange(8) % 2)
    session.adopt(None)
    return {"data-dir": str(tmp_path)}


def handlers() -> dict[str, str]:
    """Return the paths of all built-in handlers, by their names in the table."""
    texts = [path.read_text("utf-8") for folder in FOLDERS for path in folder.rglob("*.py")]
    found = {f"{a}.{f}": f"{module}:{f}" for text in texts for module, a, f in PATHS.findall(text)}
    assert len(found) > 15
    return found


def test_every_message_of_an_algorithm_is_in_the_table() -> None:
    lacking = handlers().keys() - LEAVING.keys()
    assert not lacking, "say in task/wire/leaving.py what their replies hold"
    assert {what for table in LEAVING.values() for what in table.values()} - {FACTS} <= set(NAMES)


def test_every_field_of_a_reply_has_a_name() -> None:
    known = {entry for table in LEAVING.values() for entry in table}
    facts = {kinds.NUM_EXAMPLES, kinds.TRAIN_LOSS, kinds.HALVINGS, "stable", "kept"}
    paths = [*(ROOT / "strategies").glob("*/messages.py"), *(ROOT / "zoo").glob("**/[a-z]*.py")]
    for path in paths:
        module = importlib.import_module("florets." + ".".join(path.relative_to(ROOT).with_suffix("").parts))
        for kind in vars(module).values():
            is_own = getattr(kind, "__module__", "") == module.__name__ and hasattr(kind, "__dataclass_fields__")
            if not is_own or issubclass(kind, Settings | State):
                continue
            for field, item in form_of(kind).items.items():
                name = item.name or str(field).replace("_", "-")
                assert {name, item.record} & (known | facts), f"{kind.__name__}.{field} has no name of what leaves"


def test_whatever_a_server_asks_is_refused_where_all_that_it_holds_is_never_sent(node: dict[str, Any]) -> None:
    for name in LEAVING:
        forbidden, (own, _, function) = asked_for(name, {}), name.partition(".")
        kind: str = name
        settings: dict[str, Any] = {}
        if own not in ("query", "evaluate", "train") and function:
            kind, settings = "query.custom", {kinds.HANDLER: handlers()[name]}
        if forbidden:
            with pytest.raises(ValueError, match=f"does not let it send {', '.join(sorted(forbidden))};"):
                sent({**node, "never-send": ",".join(NAMES)}, kind, settings)


def test_only_messages_that_are_named_are_answered(node: dict[str, Any]) -> None:
    allowed = {**node, "answers": "evaluate*, k_fed.*"}
    for kind, settings in {
        kinds.HELLO: {},
        kinds.LOSSES: {},
        "query.custom": {kinds.HANDLER: KMEANS, kinds.LOCAL_CLUSTERS: 1},
    }.items():
        sent(allowed, kind, settings)
    with pytest.raises(ValueError, match=r"does not let it answer train; .* add it to answers in the node config"):
        sent(allowed, kinds.TRAIN)
    with pytest.raises(ValueError, match=r"answers=trian, which is no message: "):
        sent({**node, "answers": "trian"}, kinds.HELLO)


def test_a_node_says_at_hello_what_it_cannot_send_by_the_messages_it_answers(node: dict[str, Any]) -> None:
    def never(answers: str) -> set[str]:
        config = sent({**node, "answers": answers}, kinds.HELLO)[kinds.CONFIG]
        return set(str(config.get(kinds.NEVER_SEND, "")).split(","))

    assert never("*") == {""}
    assert never("evaluate*, k_fed.*") >= {"models", "gradients", "choices", "folds"}
    assert not never("train, evaluate") & {"models", "gradients", "evaluations", "own"}
    with pytest.raises(ValueError, match="answer from at least 5 records, and loss-batch are fewer"):
        sent({**node, "min-records": 5}, kinds.HELLO, {kinds.LOSS_BATCH: 4})


@pytest.mark.parametrize(
    ("kind", "settings", "what"),
    [
        (kinds.TRAIN, {kinds.GRADIENT_BATCH: 1}, "gradient-batch"),
        (kinds.TRAIN, {"local-steps": 1, "batch-size": 2}, "batch-size"),
        (kinds.EVALUATE, {}, "test records"),
        ("evaluate.custom", {kinds.HANDLER: EVALUATE_MIXED}, "test records"),
    ],
)
def test_no_answer_is_computed_on_fewer_records(kind: str, settings: Any, what: str, node: dict[str, Any]) -> None:
    sent({**node, "min-records": 3}, kinds.TRAIN)
    with pytest.raises(ValueError, match=rf"answer from at least 3 records, and {re.escape(what)}.* are fewer"):
        sent({**node, "min-records": 3}, kind, settings)
    with pytest.raises(ValueError, match="answer from at least 9 records, and records are fewer"):
        sent({**node, "min-records": 9}, kinds.HELLO)


def test_the_noise_of_all_answers_together_is_counted(node: dict[str, Any], tmp_path: Path) -> None:
    config = {**node, "max-epsilon": 5.0, "log-folder": str(tmp_path / "log")}
    noise = {kinds.PRIVACY: "local", kinds.PRIVACY_CLIP: 1.0, kinds.PRIVACY_NOISE: 2.0}
    for kind, settings in ((kinds.HELLO, {}), (kinds.TRAIN, {}), (kinds.EVALUATE, noise)):
        with pytest.raises(ValueError, match="only with noise of its own"):
            sent(config, kind, settings)
    sent(config, kinds.HELLO, noise)
    # rho = 1/8 each; epsilon is 2.524 after one, 3.643 after two, 4.530 after three, 5.299 after four.
    for kind, settings in (
        *((kinds.TRAIN, noise), (kinds.TRAIN, noise), (kinds.LOSSES, {**noise, kinds.PRIVACY_LOSS_NOISE: 2.0})),
    ):
        sent(config, kind, settings)
    for settings in (noise, {**noise, kinds.PRIVACY_NOISE: 0.0}):
        with pytest.raises(ValueError, match="would pass the epsilon of 5 that its owner allows for all runs"):
            sent(config, kinds.TRAIN, settings)
    # A norm below 0 would reverse an update and suppress its noise.
    with pytest.raises(ValueError, match="is only in its log") as refused:
        sent(node, kinds.TRAIN, {**noise, kinds.PRIVACY_CLIP: -1.0})
    assert "must be at least 0" in str(refused.value.__cause__)


def test_the_log_says_what_left_and_what_was_refused(
    node: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logged = {**node, "log-folder": str(tmp_path / "log"), "client-id": "north", "max-epochs": 5}
    sent(logged, kinds.TRAIN)
    for never in ("loss-vectors", "models"):
        with pytest.raises(ValueError, match="does not let it send"):
            sent({**logged, "never-send": never}, kinds.TRAIN_SELECT)
    with pytest.raises(ValueError, match="this node does at most 5"):
        sent(logged, kinds.TRAIN, {"local-epochs": 6})
    path = tmp_path / "log" / node_log.LOG_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    train, *refused, capped = NodeLog(path.parent).lines()
    assert (train.kind, train.client, train.round, train.run, train.answer) == ("train", "north", 1, 1, "answered")
    assert (train.left["models"].entries, train.left["models"].size > 4 * 26) == (26, True)
    assert train.left.keys() == {"models", FACTS}
    assert [(line.kind, line.answer, line.left) for line in refused] == [("train.select", "refused", {})] * 2
    assert (capped.answer, "max-epochs" in capped.reason) == ("refused", True)
    # Counts and sizes alone.
    assert all(
        type(value) is int
        for line in path.read_text().splitlines()
        for left in json.loads(line).get("left", {}).values()
        for value in left.values()
    )
    assert command(["log", str(path.parent), "last=2"]) == 0
    refused_last, capped_last, _, sums = capsys.readouterr().out.splitlines()
    assert "run 1 round 1: train.select refused, " in refused_last
    assert "max-epochs" in capped_last
    assert re.search(r"^run 1: 4 messages, 3 refused; models 26 \(\d+ B\), facts ", sums)
    wrong = {
        "log no-folder": "holds no messages.jsonl",
        "log last=few": "takes one folder",
        "log -last": "has no such key",
    }
    for words, text in wrong.items():
        assert command(words.split()) == 2
        assert text in capsys.readouterr().err


def test_nothing_leaves_that_is_not_in_the_log(node: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "log").write_text("no folder")
    with pytest.raises(ValueError, match=r"log cannot be written .*, and nothing leaves that is not in it"):
        sent({**node, "log-folder": str(tmp_path / "log")}, kinds.LOSSES)


def test_a_run_goes_on_without_a_site_that_never_sends_what_it_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, name in enumerate(("east", "north", "west")):
        write(tmp_path / "sites", name, number)
    (tmp_path / "sites" / "north" / "node.toml").write_text('never-send = "loss-vectors"\n')
    keys = (
        *("experiment=own_data", "strategy=clove", "k=2", "num_rounds=1", "quiet=true", "task.model=linear"),
        *("target=ill", f"data_dir={tmp_path / 'sites'}", f"results_dir={tmp_path / 'runs'}"),
    )
    assert main([*keys, "min_clients=2"]) == 0
    (log,) = (tmp_path / "runs").rglob("run.log")
    assert (
        "client north cannot take part: the owner of this node does not let it send loss-vectors" in log.read_text()
    )
    assert main([*keys, "min_clients=3"]) == 1
    assert "2 of 3 clients could start: client north cannot take part" in capsys.readouterr().err
    (tmp_path / "sites" / "north" / "node.toml").write_text('never-send = ["folds"]\n')
    assert main([*keys]) == 2
    assert "never-send: must be one text, such as never-send = " in capsys.readouterr().err


def bundle(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{name}.py", text)
    return path


def test_a_bundle_is_approved_with_what_changed_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["node", "approve", str(bundle(tmp_path / "1.fab", a="1", b="1"))]) == 0
    (tmp_path / "state/flwr/florets/refused").mkdir(parents=True)
    content = bundle(tmp_path / "2.fab", a="2", **{"c\n\x1b[2J": "1"}).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    (tmp_path / f"state/flwr/florets/refused/{digest}.fab").write_bytes(content)
    capsys.readouterr()
    assert command(["approve", digest]) == 0
    assert capsys.readouterr().out.splitlines()[:3] == [r"added   c\n\x1b[2J.py", "removed b.py", "changed a.py"]
    approved = json.loads((tmp_path / "approved.json").read_text())
    assert [sorted(one["files"]) for one in approved] == [["a.py", "b.py"], ["a.py", "c\n\x1b[2J.py"]]
    (tmp_path / f"state/flwr/florets/refused/{'1' * 64}.fab").write_bytes(content)
    (tmp_path / "x.fab").write_text("no archive")
    for wrong, text in {"x.fab": "is no bundle", "0" * 64: "No such file", "1" * 64: "has been changed"}.items():
        assert main(["node", "approve", wrong]) == 2
        assert text in capsys.readouterr().err
    (tmp_path / "approved.json").write_text("[1]")
    assert main(["node", "approve", digest]) == 2
    assert "is no list of approvals" in capsys.readouterr().err


def test_approvals_that_have_gone_or_are_damaged_approve_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guards: list[Any] = []
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    monkeypatch.setattr(flower, "guard_bundles", guards.append)
    monkeypatch.setattr(flower, "run_supernode", lambda options: None)
    file, start = tmp_path / "approved.json", ["node", "start", f"approved={tmp_path / 'approved.json'}"]
    main(start)
    assert guards[0](b"any", 1) is None
    file.write_text(json.dumps([{"sha256": hashlib.sha256(b"good").hexdigest(), "files": {}}]))
    main(start)
    assert guards[1](b"good", 1) is None
    for damage in (lambda: file.write_text("[1]"), file.unlink):
        damage()
        assert "has not approved" in guards[1](b"good", 1)
