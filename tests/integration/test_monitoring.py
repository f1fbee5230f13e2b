"""A real Prometheus scrapes the real server, with the rules and the dashboards of `configs/monitoring/`."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import yaml

from tests.integration.running import Server, free_port, wait_for
from tests.monitoring.files import FOLDER, alerts, metrics_of, program, queries, rules

CHAT = {"messages": [{"role": "user", "content": "Tell me about the river."}], "max_tokens": 8}
COMPRESS = {"query": "When does the warranty end?", "input": "The pump is blue. The warranty ends in 2031."}
# Queries that find nothing on a healthy server, with the reason; the series that they are of are there all the same.
EMPTY_WHILE_HEALTHY: dict[str, str] = {}
# Series that are there only while something is wrong.
ABSENT_WHILE_HEALTHY = {"pith_model_away"}
# What Grafana puts into a query. The window holds several scrapes of a second.
GRAFANA = {"$__rate_interval": "20s", "$model": ".*"}


@dataclass(frozen=True)
class Prometheus:
    url: str

    def ask(self, path: str, **parameters: str) -> Any:
        reply = httpx.get(f"{self.url}/api/v1/{path}", params=parameters, timeout=120)
        body = reply.json()
        assert body["status"] == "success", f"{parameters}: {body.get('error')}"
        return body["data"]

    def value(self, expression: str) -> list[Any]:
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found


@pytest.fixture(scope="module")
def prometheus(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A process of its own, with all it writes in a folder of this run, that has seen some requests."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    document = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
    document["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"}
    document["rule_files"] = [str(FOLDER / "alerts.yaml")]
    document["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{server.ops_port}"]}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(document))
    command = [
        program("prometheus"),
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
    ]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            found = Prometheus(f"http://127.0.0.1:{port}")
            wait_for(lambda: is_up(found), what="Prometheus scrapes the server")
            some_traffic(server, server.new_key("monitored", limit_usd="5"))
            scrapes = 'count_over_time(pith_chat_inter_token_seconds_count{model="pith-mini"}[1m]) > 3'
            wait_for(lambda: found.value(scrapes), what="several scrapes", every_s=0.5)
            yield found
        finally:
            process.terminate()


def is_up(prometheus: Prometheus) -> bool:
    try:
        return bool(prometheus.value('up{job="pith"} == 1'))
    except (httpx.HTTPError, ValueError):
        return False


def some_traffic(server: Server, key: str | None = None) -> None:
    with server.client(key=key) as client:
        for stream in (False, True):
            assert client.post("/v1/chat/completions", json={**CHAT, "stream": stream}).status_code == 200
        assert client.post("/v1/compress", json=COMPRESS).status_code == 200


def test_every_query_of_every_dashboard_finds_data(prometheus: Prometheus, server: Server) -> None:
    stop = threading.Event()
    # What is asked for a second needs requests in the last few.
    busy = threading.Thread(target=keep_busy, args=(server, stop))
    busy.start()
    try:
        empty = wait_for_data(prometheus)
    finally:
        stop.set()
        busy.join()
    assert not empty, "\n".join(empty)


def keep_busy(server: Server, stop: threading.Event) -> None:
    with server.client() as client:
        while not stop.wait(0.2):
            client.post("/v1/chat/completions", json={**CHAT, "stream": True})
            client.post("/v1/compress", json=COMPRESS)


def wait_for_data(prometheus: Prometheus) -> list[str]:
    """The queries that found nothing, though they were asked until the slowest was due."""
    left = {str(query): in_words_of_prometheus(query.expression) for query in queries()}
    assert len(left) > 80
    left = {name: expression for name, expression in left.items() if expression not in EMPTY_WHILE_HEALTHY}
    for _ in range(15):
        left = {name: expression for name, expression in left.items() if not prometheus.value(expression)}
        if not left:
            break
        threading.Event().wait(1)
    return list(left)


def in_words_of_prometheus(expression: str) -> str:
    for word, meaning in GRAFANA.items():
        expression = expression.replace(word, meaning)
    assert "$" not in expression
    return expression


def test_every_rule_is_evaluated_and_the_series_of_every_alert_are_there(
    prometheus: Prometheus, server: Server
) -> None:
    found = {rule["name"]: rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]}
    assert found.keys() == {rule.get("alert") or rule["record"] for rule in rules()}
    # Each group is evaluated once a second.
    wait_for(lambda: all_evaluated(prometheus), what="every rule is evaluated", every_s=0.5)
    # The shares of errors need requests between two scrapes.
    some_traffic(server)
    wait_for(
        lambda: prometheus.value("pith:http_errors:ratio_rate6h"), what="requests are counted", every_s=0.5
    )
    missing = {
        f"{alert['alert']}: {metric}"
        for alert in alerts()
        for metric in metrics_of(alert["expr"])
        if not prometheus.value(metric)
    }
    assert {name for name in missing if name.rpartition(" ")[2] not in ABSENT_WHILE_HEALTHY} == set()
    assert prometheus.ask("metadata").keys() >= ABSENT_WHILE_HEALTHY


def all_evaluated(prometheus: Prometheus) -> bool:
    rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert not [rule for rule in rules if rule.get("lastError")]
    return all(rule["health"] == "ok" for rule in rules)


def test_a_healthy_server_raises_none_of_the_alarms_of_one_that_is_not(prometheus: Prometheus) -> None:
    firing = {alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"]}
    assert not firing & {
        "PithDown",
        "PithNoIngress",
        "PithLedgerAway",
        "PithUsageLost",
        "PithBoundExceeded",
        "PithUpkeepFailing",
    }


def test_prometheus_takes_the_whole_scrape_without_a_warning(prometheus: Prometheus) -> None:
    (target,) = prometheus.ask("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    names = prometheus.ask("label/__name__/values")
    assert len([name for name in names if name.startswith("vllm:")]) > 40
    assert not [name for name in names if not re.match(r"(vllm:|pith[_:]|process_|scrape_|up$|ALERTS)", name)]
