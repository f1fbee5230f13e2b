"""What `serve` uses of uvicorn's and aiohttp's insides means at the pinned versions what is relied on."""

from __future__ import annotations

from tests.vendor_source import parameters, text

PROTOCOL = "uvicorn.protocols.http.httptools_impl"
CONNECTION = "HttpToolsProtocol"


def test_uvicorn_starts_every_request_in_one_place() -> None:
    """Else a request would run of which the connection's deadlines do not know."""
    assert parameters(PROTOCOL, f"{CONNECTION}._start_asgi_task") == ["cycle", "app"]
    for begins in ("on_headers_complete", "on_response_complete"):
        assert "self._start_asgi_task(" in text(PROTOCOL, f"{CONNECTION}.{begins}")
    created = [line for line in text(PROTOCOL, CONNECTION).splitlines() if "create_task" in line]
    assert created and all(
        line.strip() in text(PROTOCOL, f"{CONNECTION}._start_asgi_task") for line in created
    )


def test_uvicorns_own_time_for_idle_connections_can_be_taken_back() -> None:
    """Else it would close one on which half a request has come."""
    stopped = text(PROTOCOL, f"{CONNECTION}._unset_keepalive_if_required")
    assert "self.timeout_keep_alive_task.cancel()" in stopped
    assert "self.timeout_keep_alive_task = self.loop.call_later(" in text(
        PROTOCOL, f"{CONNECTION}.on_response_complete"
    )


def test_a_request_of_uvicorns_is_told_that_its_client_has_left() -> None:
    """Else an engine would go on for nobody."""
    lost = text(PROTOCOL, f"{CONNECTION}.connection_lost")
    assert "self.cycle.disconnected = True" in lost and "self.cycle.message_event.set()" in lost
    assert "if self.disconnected or self.response_complete" in text(PROTOCOL, "RequestResponseCycle.receive")


def test_aiohttp_sends_a_replys_head_with_its_first_bytes_where_it_is_told_so() -> None:
    prepared = text("aiohttp.web_response", "StreamResponse")
    assert "if self._send_headers_immediately:" in prepared and "writer.send_headers()" in prepared
