"""How metrics are written for who scrapes them."""

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import make_wsgi_app

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
# Prometheus asks for OpenMetrics first, in which `prometheus_client` turns the colons of names into underscores.
TEXT = "text/plain;version=0.0.4"


def scrape_app(registry: CollectorRegistry) -> Wsgi:
    """A WSGI application that answers in the text format, whatever is asked for, and compressed where that is."""
    app: Wsgi = make_wsgi_app(registry)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        return app({**environ, "HTTP_ACCEPT": TEXT}, start_response)

    return answer
