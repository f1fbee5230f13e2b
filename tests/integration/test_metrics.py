"""The ops port of the running server: what it shows, to whom, and that a killed HTTP process takes no count with it."""

from __future__ import annotations

import signal
import socket

import httpx
import psutil
import pytest

from tests.integration.running import Server, free_port, wait_for
from tests.integration.test_start_and_stop import pith
from tests.serve.metrics.readings import Readings, grown, of_text

CHAT = {"messages": [{"role": "user", "content": "Tell me about the river."}], "max_tokens": 5}
COMPRESS = {"query": "When does the warranty end?", "input": "The pump is blue. The warranty ends in 2031."}
INGRESS_S = 60


def scrape(server: Server) -> Readings:
    return of_text(httpx.get(f"http://127.0.0.1:{server.ops_port}/metrics", timeout=120).text)


def requests(readings: Readings, route: str) -> float:
    return sum(
        value
        for name, value in readings.items()
        if name.startswith("pith_http_requests_total{") and f'route="{route}"' in name
    )


def test_the_metrics_grow_by_what_was_requested(server: Server) -> None:
    before = scrape(server)
    poor = server.new_key("metrics-poor", limit_usd="0.000000001")
    with server.client() as client:
        whole = client.post("/v1/chat/completions", json=CHAT).json()
        with client.stream("POST", "/v1/chat/completions", json={**CHAT, "stream": True}) as stream:
            assert b"data: [DONE]" in stream.read()
        compressed = client.post("/v1/compress", json=COMPRESS).json()
        client.get("/v1/models")
    with server.client(key=poor) as client:
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 402
    # A request is counted once its last byte was sent, a moment after its client has it.
    after = wait_for(lambda: is_over(before, scrape(server)), what="the HTTP requests are counted")

    usage, model = whole["usage"], '{model="pith-mini"}'
    chat = grown(before, after, "pith_chat_")
    assert chat == {
        'pith_chat_requests_total{model="pith-mini",outcome="completed"}': 2,
        'pith_chat_requests_total{model="pith-mini",outcome="refused"}': 1,
        f"pith_chat_prompt_tokens_total{model}": 2 * usage["prompt_tokens"],
        f"pith_chat_completion_tokens_total{model}": 2 * usage["completion_tokens"],
        f"pith_chat_time_to_first_token_seconds_count{model}": 1,
        f"pith_chat_request_duration_seconds_count{model}": 2,
        # How many tokens travel together varies.
        f"pith_chat_inter_token_seconds_count{model}": chat[f"pith_chat_inter_token_seconds_count{model}"],
        **{name: value for name, value in chat.items() if "cached_tokens" in name},
    }
    assert 0 < chat[f"pith_chat_inter_token_seconds_count{model}"] < usage["completion_tokens"]
    charged = 2 * whole["service"]["billing"]["request_cost_usd"]
    assert grown(before, after, "pith_charged") == {f"pith_charged_usd_total{model}": round(charged, 12)}
    assert grown(before, after, "pith_holds") == {
        'pith_holds_refused_total{model="pith-mini",reason="quota_exceeded"}': 1
    }
    assert grown(before, after, "pith_metering") == {
        'pith_metering_total{model="pith-mini",status="persisted"}': 2,
        'pith_metering_total{model="pith-lexical",status="persisted"}': 1,
    }
    receipt = compressed["receipt"]
    compress = grown(before, after, "pith_compress_")
    assert compress['pith_compress_requests_total{model="pith-lexical",outcome="completed"}'] == 1
    for name in ("original_tokens", "output_tokens"):
        assert compress[f'pith_compress_{name}_total{{model="pith-lexical"}}'] == receipt[name]
    assert grown(before, after, "pith_http_requests_total") == {
        'pith_http_requests_total{method="POST",route="/v1/chat/completions",status="200"}': 2,
        'pith_http_requests_total{method="POST",route="/v1/chat/completions",status="402"}': 1,
        'pith_http_requests_total{method="POST",route="/v1/compress",status="200"}': 1,
        'pith_http_requests_total{method="GET",route="/v1/models",status="200"}': 1,
    }
    assert after["pith_ingress_replicas"] == 2
    for figure in ("running", "wanted"):
        assert after[f"pith_replicas_{figure}{model}"] == 1
    assert after[f"pith_chat_requests_waiting{model}"] == 0
    assert after["pith_spool_waiting_events"] == after["pith_spool_refused_events"] == 0


def is_over(before: Readings, after: Readings) -> Readings | None:
    asked = {"/v1/chat/completions": 3, "/v1/compress": 1, "/v1/models": 1}
    done = all(requests(after, route) - requests(before, route) == times for route, times in asked.items())
    return after if done and after["pith_http_requests_in_flight"] == 0 else None


def test_the_ops_port_is_on_loopback_and_the_public_port_shows_no_metrics(server: Server) -> None:
    listening = [
        connection.laddr.ip
        for connection in psutil.Process(server.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == server.ops_port
    ]
    assert listening == ["127.0.0.1"]
    for address in other_addresses():
        with socket.socket(socket.AF_INET) as probe:
            assert probe.connect_ex((address, server.ops_port)) != 0
    with server.client() as client:
        for path in ("/metrics", "/metrics/"):
            reply = client.get(path)
            assert reply.status_code == 404 and "pith_" not in reply.text


def other_addresses() -> list[str]:
    return [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family == socket.AF_INET and not address.address.startswith("127.")
    ]


def test_a_used_ops_port_ends_with_one_line_and_exit_code_2(server: Server) -> None:
    done = pith("serve", "--config", str(server.config), "--port", str(free_port()))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert str(server.ops_port) in done.stderr and "--ops-port" in done.stderr


def test_a_killed_http_process_takes_no_count_with_it_and_leaves_nothing_in_flight(server: Server) -> None:
    with server.client() as client:
        client.post("/v1/chat/completions", json=CHAT).raise_for_status()
        client.get("/health")
    before = scrape(server)
    ingress(server).send_signal(signal.SIGKILL)
    wait_for(lambda: scrape(server)["pith_ingress_replicas"] == 1, what="its gauge is gone")
    killed = scrape(server)
    name = 'pith_chat_requests_total{model="pith-mini",outcome="completed"}'
    assert killed[name] == before[name] > 0
    assert killed["pith_http_requests_in_flight"] == 0
    # Clients that come now do not notice.
    assert is_healthy(server)
    with server.client() as client:
        client.post("/v1/chat/completions", json=CHAT).raise_for_status()
    wait_for(
        lambda: scrape(server)["pith_ingress_replicas"] == 2,
        timeout_s=INGRESS_S,
        what="another has taken its place",
        every_s=0.5,
    )
    after = scrape(server)
    assert after[name] == before[name] + 1


def ingress(server: Server) -> psutil.Process:
    """A process that listens on the public port, beside the one that keeps it."""
    found, _ = [
        process
        for process in psutil.Process(server.pid).children(recursive=True)
        for connection in process.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == server.port
    ]
    return found


def is_healthy(server: Server) -> bool:
    try:
        return httpx.get(f"{server.url}/ready", timeout=120).status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.usefixtures("one_day")
def test_status_shows_the_models_their_replicas_and_what_was_spent_today(server: Server) -> None:
    with server.client() as client:
        spent = client.post("/v1/chat/completions", json=CHAT).json()["service"]["billing"][
            "request_cost_usd"
        ]
    found = server.pith("status", "--every", "0.2")
    assert found["http_processes"] == 2 and float(found["spend_today_usd"]) >= spent > 0
    (mini,) = (row for row in found["models"] if row["model"] == "pith-mini")
    assert (mini["replicas_running"], mini["replicas_wanted"]) == (1, 1)
    assert mini["requests_today"] >= 1 and float(mini["spend_today_usd"]) >= spent
