import json
import math
import re
from html.parser import HTMLParser

import pytest
from results_examples import CLIENTS, FOUND, MIXED, TRUTH, evaluations, record, report

from florets.reports.pages import CSS
from florets.reports.protections import protections, spent_together
from florets.reports.summary import round_line
from florets.server_app.recorder import Recorder
from florets.strategies.base.report import Client
from florets.strategies.core.accountant import epsilon_of, level_of

VOID = {"meta", "img", "link", "br"}


class Page(HTMLParser):
    """Checks that tags nest, and gathers the text and the addresses."""

    def __init__(self, html):
        super().__init__()
        self.open, self.words, self.sources = [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.sources += [value for name, value in attributes if name in ("src", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


def page_of(folder):
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def finished(folder, clients=CLIENTS, assignment=FOUND, **changes):
    with Recorder(folder, "k: 2\n", "tiny", "clove", 0, 3, quiet=True) as recorder:
        recorder.clients(clients)
        recorder.round(report(1, assignment=assignment, **changes))
        recorder.finish({}, changes.get("evaluations", evaluations()), assignment)
    return page_of(folder)


def test_the_page_shows_the_run(tmp_path):
    record(tmp_path / "run")
    text = page_of(tmp_path / "run").text
    assert "Four clients" in text
    assert "The 2 true clusters of 4 clients are recovered exactly; the clustering is stable from round 3." in text
    assert "test accuracy 75.00% mean over clients, std 17.7" in text
    assert "adjusted Rand index 1.000 at least 0.9 from round 2" in text
    assert "12 kB 9 kB down, 3 kB up" in text
    assert "true cluster model 0 model 1 cluster 0 2 cluster 1 2" in text
    assert "ok 24 error 0" in text
    assert "00 0 1 100 20 0.25 50.0% cpu" in text
    assert "k: 2" in text


@pytest.mark.pictures
def test_the_page_needs_no_other_file(tmp_path):
    record(tmp_path / "run")
    sources = page_of(tmp_path / "run").sources
    assert len(sources) == 2
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in sources)
    assert CSS in (tmp_path / "run" / "report.html").read_text()


def test_names_from_other_machines_are_text_never_markup(tmp_path):
    key = "<script>alert(1)</script>"
    page = finished(tmp_path / "run", [Client(key, 1, 1, 10, None, "cpu")], {key: 0}, participants=(key,))
    assert key in page.text
    assert key not in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        (MIXED, "2 clusters, 2 true ones; adjusted Rand index 0.00"),
        (dict.fromkeys(TRUTH, 0), "One model serves all clients: the 2 true clusters are not separated."),
        ({key: n for n, key in enumerate(TRUTH)}, "Each client has its own model"),
        ({"00": 0, "01": 0, "02": 1}, "adjusted Rand index 1.000 over 3 of 4 clients; at least 0.9 from round 1"),
    ],
)
def test_the_verdict_fits_the_outcome(tmp_path, assignment, words):
    assert words in finished(tmp_path / "run", assignment=assignment).text


def test_of_thousands_of_clients_the_page_lists_the_first(tmp_path):
    clients = [Client(f"{i:04d}", i, i, 10, i % 2, "cpu") for i in range(2000)]
    text = finished(tmp_path / "run", clients, {client.key: 0 for client in clients}).text
    assert "Clients (2000) The first 300 of them; all are in clients.csv" in text
    assert "0299" in text
    assert "0300" not in text
    assert (tmp_path / "run" / "report.html").stat().st_size < 300_000


def test_protections_of_a_run_are_listed_and_none_where_all_are_off(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("robust: none\n")
    lines = [round_line(report(r), TRUTH) for r in (1, 2, 3, 4)]
    assert protections(tmp_path, lines, []) == []
    config.write_text("robust: median\nhostile: 0.2\nsecure_aggregation: true\n")
    for line, keys in zip(lines, (["b"], [], ["b"], ["a", "b"]), strict=True):
        line["details"] = {"quarantine": {"clients": keys}, **({"summed": 5.0} if line["round"] > 2 else {})}
    lines[-1]["details"]["privacy"] = {"epsilon": 2.5, "target": 8.0, "delta": 0.005, "kind": "local"}
    assert [state for _, state in protections(tmp_path, lines, ["c"])] == [
        "median, against 20% hostile clients in a group",
        "a, b",
        "epsilon 2.5 of 8 (delta 0.005, local); covers models, not scores and groups shown here",
        "2 of 4 rounds, from round 3 on",
        "c; run.log says why",
    ]


def test_private_runs_of_a_sweep_add_up(tmp_path):
    level = level_of(2.0, 0.01) ** 2
    budget = {"epsilon": 2.0, "delta": 0.01, "total": level, "update": level, "grouping": 0.0}
    for number in range(4):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "privacy.json").write_text(json.dumps({**budget, "spent": {"a": level}}))
    # Four equal releases have twice the level of one.
    together = spent_together([tmp_path / str(number) for number in range(5)])
    assert f"the 4 private runs together spend epsilon {epsilon_of(2 * math.sqrt(level), 0.01):.3g}" in together
    assert spent_together([tmp_path / "0"]) == ""
