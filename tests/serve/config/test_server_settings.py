"""Origins of browsers and collectors of traces: clear errors for those that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from serve.config.paths import ConfigError
from serve.config.server_settings import TracingSettings
from serve.config.settings import load_settings
from serve.config.values import origin
from tests.serve.served import settings_document


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("*", "*"),
        ("https://chat.example.com", "https://chat.example.com"),
        ("HTTPS://Chat.Example.com:443", "https://chat.example.com"),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://localhost:80", "http://localhost"),
        ("http://[::1]:5173", "http://[::1]:5173"),
        ("chrome-extension://abcdefghijklmnop", "chrome-extension://abcdefghijklmnop"),
    ],
)
def test_an_origin_is_kept_as_browsers_send_it(given: str, sent: str) -> None:
    assert origin(given) == sent


@pytest.mark.parametrize(
    "given",
    [
        *(
            "",
            "null",
            "localhost:3000",
            "https://",
            "https://chat.example.com/",
            "https://chat.example.com/app",
        ),
        *(
            "https://*.example.com",
            "https://user@example.com",
            "https://example.com:0",
            "https://example.com:70000",
        ),
        *("https://example.com\nhttps://other.com", "https://bücher.example", "https://example.com:"),
    ],
)
def test_what_no_browser_sends_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.cors_origins: .* is not an origin: scheme://host"):
        load(tmp_path, [given])


def test_all_origins_stand_alone(tmp_path: Path) -> None:
    assert load(tmp_path, ["*"]) == ["*"]
    with pytest.raises(ConfigError, match="no other may stand beside it"):
        load(tmp_path, ["*", "https://example.com"])


def load(folder: Path, given: list[str]) -> list[str]:
    path = folder / "pith.yaml"
    document = settings_document(folder)
    document["server"]["cors_origins"] = given
    path.write_text(yaml.safe_dump(document))
    return load_settings(path).server.cors_origins


COLLECTOR = "https://collector.example:4317"


def test_engines_that_would_speak_without_tls_to_a_collector_that_wants_it_are_refused() -> None:
    with pytest.raises(
        ValidationError, match=r"vLLM speaks gRPC without TLS.*protocol: http, or engine: false"
    ):
        TracingSettings(endpoint=COLLECTOR, protocol="grpc")
    alone = TracingSettings(endpoint=COLLECTOR, protocol="grpc", engine=False)
    assert alone.of_engines is None
    for terms in (
        TracingSettings(endpoint=COLLECTOR, protocol="http").of_engines,
        TracingSettings(endpoint="http://collector.example:4317", protocol="grpc").of_engines,
    ):
        assert terms is not None
