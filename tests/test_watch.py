"""`florets watch`: what it reads of a run that goes on, what its page shows, and whom its server answers."""

import http.client
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from florets.commands import watch
from florets.conf.problems import ConfigError
from florets.reports.frames import CLIENTS_OVER_ROUNDS
from florets.reports.quantities import Quantity
from florets.reports.watch.page import curve, main_part, whole_page
from florets.reports.watch.server import WatchServer
from florets.reports.watch.state import MOST_ROUNDS, ClientHistory, Move, Watched
from florets.server_app.recorder import Recorder
from tests.results_examples import CLIENTS, FOUND, MIXED, record, report

CONFIG = "experiment: tiny\nseed: 7\nnum_rounds: 8\nstrategy: {name: clove}\ntask: {data: digits, model: mlp}\n"
HEAD = "round,client,cluster,sampled,reply,train_loss,test_loss\n"


@contextmanager
def going_on(folder: Path, rounds: int = 2) -> Iterator[Recorder]:
    """A run of eight rounds after some of them."""
    with Recorder(folder, CONFIG, "tiny", "clove", 7, 8, quiet=True) as recorder:
        recorder.clients(CLIENTS)
        for number in range(1, rounds + 1):
            recorder.round(report(number, assignment=MIXED if number == 1 else FOUND))
        yield recorder


@contextmanager
def served(watched: Watched) -> Iterator[Callable[..., http.client.HTTPResponse]]:
    """Return what asks a server for a path and returns its answer, whose text is read."""
    server = WatchServer(watched)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def ask(path: str, host: str | None = None, method: str = "GET", **headers: str) -> Any:
        link = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
        named = {"Host": host} if host is not None else {}
        link.request(method, path, headers={**named, **{n.replace("_", "-"): v for n, v in headers.items()}})
        answer = link.getresponse()
        answer.text = answer.read().decode()  # type: ignore[attr-defined]
        link.close()
        return answer

    try:
        yield ask
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_run_that_goes_on(tmp_path: Path) -> None:
    watched = Watched(tmp_path / "run")
    assert watched.state().status == "waiting"
    with going_on(tmp_path / "run") as recorder:
        state = watched.state()
        assert (state.status, len(state.lines), state.total) == ("running", 2, 8)
        # A round took one second, six are left.
        assert state.left == pytest.approx(6.0, abs=1.0)
        assert (state.names.experiment, state.names.strategy, state.names.seed) == ("tiny", "clove", "7")
        page = main_part(state, watched.clients)
        assert "Running: round 2 of 8; about" in page
        assert 'aria-valuenow="2"' in page
        assert "<li>02</li>" in page
        # From MIXED to FOUND.
        assert list(watched.clients.moves) == [Move(2, "00", 0, 1), Move(2, "01", 0, 1), Move(2, "03", 1, 0)]
        assert "00 from 0 to 1, 01 from 0 to 1, 03 from 1 to 0" in page
        assert "00 (from 0)" in page
        before = watched.signature()
        recorder.round(report(3))
        assert watched.signature() != before
    # Without the file of the clients, as an earlier version leaves none, the groups have sizes alone.
    (tmp_path / "run" / CLIENTS_OVER_ROUNDS).unlink()
    page = main_part(watched.state(), watched.clients)
    assert "2 clients" in page
    assert "<li>02</li>" not in page


def test_a_run_that_was_ended_killed_or_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError), going_on(tmp_path / "ended"):
        raise RuntimeError("two of <four> clients")
    ended = Watched(tmp_path / "ended")
    assert (ended.state().status, ended.state().reason) == ("ended", "two of <four> clients")
    assert "two of &lt;four&gt; clients" in main_part(ended.state(), ended.clients)
    record(tmp_path / "over")
    over = Watched(tmp_path / "over")
    assert over.state().status == "finished"
    assert 'href="/report.html"' in main_part(over.state(), over.clients)
    with going_on(tmp_path / "killed"):
        later = time.time() + 3600
    monkeypatch.setattr("florets.reports.watch.state.time.time", lambda: later)
    assert Watched(tmp_path / "killed").state().status == "silent"


def test_who_moved_is_read_as_the_file_grows(tmp_path: Path) -> None:
    path, history = tmp_path / CLIENTS_OVER_ROUNDS, ClientHistory(tmp_path)
    history.update()
    assert not history.clusters
    path.write_text(HEAD + "1,a,0,true,ok,0.9,0.5\n1,b,1,true,ok,0.9,0.7\n2,a,1,true,error,,\n2,b,")
    history.update()
    assert history.clusters == {"a": 1, "b": 1}
    assert list(history.moves) == [Move(2, "a", 0, 1)]
    assert history.troubles == {"a": 1}
    # The rest of the line that was being written, and a client that is not there in a round.
    with path.open("a") as file:
        file.write("0,true,ok,0.8,nan\n3,b,0,false,,,0.25\n")
    history.update()
    assert list(history.moves) == [Move(2, "a", 0, 1), Move(2, "b", 1, 0)]
    name, rounds, losses = history.losses()
    assert (name, rounds) == ("test_loss", [1, 2, 3])
    assert losses["a"] == {1: 0.5}
    assert (losses["b"][1], losses["b"][3]) == (0.7, 0.25)
    # A client that no longer has a model is in no group.
    with path.open("a") as file:
        file.write("4,b,,false,,,\n")
    history.update()
    assert history.clusters == {"a": 1}
    # The run begins anew: the file is another one.
    new = tmp_path / "new"
    new.write_text(HEAD + "".join(f"{number},a,2,true,ok,0.5,\n" for number in range(1, 40)))
    new.replace(path)
    history.update()
    assert (history.clusters, list(history.moves)) == ({"a": 2}, [])
    assert (history.losses()[0], len(history.losses()[1])) == ("train_loss", MOST_ROUNDS)


def test_a_name_is_no_second_row(tmp_path: Path) -> None:
    (tmp_path / CLIENTS_OVER_ROUNDS).write_text(
        HEAD + "1,a\u2028x\x85,0,true,ok,,0.5\n1,b,1,true,ok,,0.5\n", encoding="utf-8"
    )
    history = ClientHistory(tmp_path)
    history.update()
    assert history.clusters == {"a\u2028x\x85": 0, "b": 1}


def test_what_clients_call_themselves_stays_text(tmp_path: Path) -> None:
    evil = '<img src=x onerror=alert(1)>"'
    with going_on(tmp_path) as recorder:
        quoted = '"' + evil.replace('"', '""') + '"'
        rows = f"1,{quoted},0,true,ok,1,1\n2,{quoted},1,true,invalid,1,inf\n"
        (tmp_path / CLIENTS_OVER_ROUNDS).write_text(HEAD + rows)
        recorder.round(report(3, rejected={evil: "<b>far</b>"}))
        watched = Watched(tmp_path)
        page = whole_page(watched.state(), watched.clients, "nonce")
    assert "<img src=x" not in page
    assert "<b>far" not in page
    # In its group, among who moved, beside its losses, among failed replies, among who was rejected.
    assert page.count("&lt;img src=x") == 5
    assert "diverged" in page


def test_the_page_is_its_own_and_whole(tmp_path: Path) -> None:
    with going_on(tmp_path / "run"), served(Watched(tmp_path / "run")) as ask:
        answer = ask("/")
        assert answer.status == 200
        nonce = re.search(r'<script nonce="([\w-]+)">', answer.text)
        assert nonce is not None
        policy = answer.headers["Content-Security-Policy"]
        assert f"script-src 'nonce-{nonce[1]}'" in policy
        assert "default-src 'none'" in policy
        assert not re.findall(r'(?:src|href)="(?:https?:)?//', answer.text)
        part = ask("/main")
        assert part.status == 200
        assert part.text in answer.text or "State at" in part.text
        assert ask("/main", If_None_Match=part.headers["ETag"]).status == 304


def test_no_file_is_served(tmp_path: Path) -> None:
    with going_on(tmp_path / "run"), served(Watched(tmp_path / "run")) as ask:
        for path in ("/config.yaml", "/report.html", "/../run.log", "/%2e%2e/x", "/?x", "/main/", "/main?x"):
            assert ask(path).status == 404
    record(tmp_path / "run")
    with served(Watched(tmp_path / "run")) as ask:
        assert ask("/report.html").text == (tmp_path / "run" / "report.html").read_text()


def test_only_this_machines_names_are_answered(tmp_path: Path) -> None:
    with served(Watched(tmp_path / "run")) as ask:
        # Through a tunnel the port is another one.
        for host in ("127.0.0.1", "localhost:8000", "LOCALHOST", "[::1]:80", "[::1]"):
            assert ask("/", host).status == 200
        for host in ("evil.example", "127.0.0.1.evil.example:80", "localhost.evil", "", "127.0.0.1@evil"):
            assert ask("/main", host).status == 421
        assert ask("/", method="POST").status == 501


def test_the_command_ends_with_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    record(tmp_path / "run")
    monkeypatch.setattr(watch, "_LAST_SECONDS", 0.0)
    assert watch.main([str(tmp_path / "run"), "until_end=true"]) == 0
    assert re.search(r"http://127\.0\.0\.1:\d+/ shows ", capsys.readouterr().out)
    with pytest.raises(RuntimeError), going_on(tmp_path / "ended"):
        raise RuntimeError
    assert watch.main([str(tmp_path / "ended"), "until_end=true"]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "needs one folder"),
        (["a", "prot=3"], "Did you mean port"),
        (["a", "port=x"], "from 0 to 65535"),
    ],
)
def test_arguments_are_checked(arguments: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        watch.main(arguments)


def test_a_curve_stays_inside_its_axes() -> None:
    drawn = str(curve([(1, 0.5), (2, 0.9)], Quantity('a "name"', "index"), 4, {1: 0.1, 2: 0.3}))
    # Rounds 1 to 4 span 62 to 394, values 0.45 to 1 the 196 down to 12; what is above 1 ends there.
    assert 'class="curve" points="62.0,179.3 172.7,45.5"' in drawn
    assert 'class="band" points="62.0,145.8 172.7,12.0 172.7,145.8 62.0,196.0"' in drawn
    assert "a &#34;name&#34;, round 2: 0.90" in drawn
