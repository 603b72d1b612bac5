"""Client handlers that a strategy brings: what they are given, where they may run, and how their code is compared."""

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from flwr.app import Context, Message, RecordDict

from florets.client_app.app import app
from florets.conf.compose import compose
from florets.engines.local_grid import LocalGrid
from florets.server_app.build import build_models, build_task, message_settings
from florets.task.fingerprint import code_fingerprint, fingerprint, project_fingerprint
from florets.task.wire import bank, codec, kinds
from florets.task.wire.replies import Introduction

CONFIG = compose(["num_clients=4", "strategy=fedavg", "task.model_options={hidden: [8]}"])
TASK = build_task(CONFIG)
SETTINGS = message_settings(CONFIG, TASK)
WEIGHTED = "tests.own_handlers:weighted"


def sent(kind: str, node_config: Mapping[str, str | int], **settings: object) -> RecordDict:
    LocalGrid(app, 1)  # lets messages be built
    config = SETTINGS.copy()
    config.update(settings)  # type: ignore[arg-type]
    content = RecordDict({kinds.CONFIG: config, kinds.ARRAYS: bank.model(build_models(CONFIG, TASK), 0)})
    context = Context(run_id=1, node_id=2, node_config=dict(node_config), state=RecordDict(), run_config={})
    return app(Message(content, 2, kind), context).content


SIMULATED: Mapping[str, str | int] = {"partition-id": 1, "num-partitions": 4}
REAL: Mapping[str, str | int] = {"partition-id": 1, "data-dir": "here"}


@pytest.mark.parametrize("category", ["train", "evaluate", "query"])
def test_handlers_answer_in_every_category_with_draws_that_repeat(category: str) -> None:
    kind, draws = f"{category}.custom", {kinds.HANDLER: "tests.own_handlers:draws", kinds.SERVER_ROUND: 1}
    numbers = sent(kind, SIMULATED, **draws)[kinds.METRICS]
    assert numbers["first"] == numbers["again"]
    assert numbers == sent(kind, SIMULATED, **draws)[kinds.METRICS]
    assert numbers != sent(kind, {**SIMULATED, "partition-id": 2}, **draws)[kinds.METRICS]


@pytest.mark.parametrize("allowed", ["", "tests.own_handler"])
def test_a_real_node_runs_no_handler_that_its_owner_has_not_allowed(allowed: str) -> None:
    node = {**REAL, "allow": allowed} if allowed else REAL
    refusal = (
        r"handler=tests.own_handlers:draws: this node does not allow that code; .* allow='tests' to the SuperNode"
    )
    with pytest.raises(ValueError, match=refusal):
        sent("query.custom", node, **{kinds.HANDLER: "tests.own_handlers:draws"})
    with pytest.raises(ValueError, match=refusal):
        sent(kinds.HELLO, node, **{kinds.HANDLERS: ["tests.own_handlers:draws"]})


@pytest.mark.parametrize("allowed", ["tests", "other, tests.own_handlers"])
def test_a_real_node_runs_the_handlers_of_packages_that_it_allows(allowed: str) -> None:
    node = {**REAL, "allow": allowed}
    assert sent("query.custom", node, **{kinds.HANDLER: "tests.own_handlers:draws"})[kinds.METRICS]


def test_every_node_has_the_handlers_of_the_projects_algorithms_and_nothing_else_of_it_is_one() -> None:
    place = "florets.zoo.k_fed"
    for node in (REAL, SIMULATED):
        # Not what the method's module imports.
        for other, refusal in (("k_fed:canonical", "no parameter 'client'"), ("fedsoft:trained_near", "no client h")):
            with pytest.raises(ValueError, match=refusal):
                sent("query.custom", node, **{kinds.HANDLER: f"florets.zoo.{other}"})
    assert sent("query.custom", SIMULATED, **{kinds.HANDLER: f"{place}:kmeans", kinds.LOCAL_CLUSTERS: 2})[
        kinds.METRICS
    ]
    # Only its owner's consent lets a real node run others of our functions.
    for other in ("florets.zoo.fedem:_step", "florets.task.fingerprint:forget"):
        with pytest.raises(ValueError, match="this node does not allow that code"):
            sent("query.custom", REAL, **{kinds.HANDLER: other})


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (None, "the message's config has no 'handler'"),
        ("../secret:f", "the form is package.module:function"),
        ("tests.nowhere:f", r"module 'tests.nowhere' cannot be imported here \(ModuleNotFoundError"),
        ("shutil:rmtree", r"no parameter 'client' .* its signature must be f\(client\)"),
        ("tests.own_handlers:nothing", "returned a NoneType, not a flwr.app.RecordDict"),
    ],
)
def test_a_handler_that_cannot_answer_is_named(handler: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sent("query.custom", SIMULATED, **({kinds.HANDLER: handler} if handler else {}))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the file of a handler in a package that is installed for this test."""
    folder = tmp_path / "florets_handlers_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").touch()
    file = folder / "fold.py"
    file.write_text("def fold(client): ...\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield file
    code_fingerprint.cache_clear()


def test_the_fingerprint_covers_all_files_of_a_handlers_package(package: Path) -> None:
    handlers = (f"{package.parent.name}.fold:fold",)
    prints = [project_fingerprint(), code_fingerprint(handlers)]
    for file in (package, package.with_name("helper.py")):
        file.write_text("def fold(client): return 1\n", encoding="utf-8")
        code_fingerprint.cache_clear()
        fingerprint.cache_clear()
        prints.append(code_fingerprint(handlers))
    assert len(set(prints)) == 4
    assert code_fingerprint(()) == prints[0]


def test_hello_reports_the_code_of_the_handlers() -> None:
    told = codec.read(Introduction, sent(kinds.HELLO, SIMULATED, **{kinds.HANDLERS: [WEIGHTED]}))
    assert told.fingerprint == code_fingerprint((WEIGHTED,)) != project_fingerprint()
