"""Where a server answers that listens on an address of this machine."""

# Every address of a machine is one that it can reach itself by.
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def base_url(host: str, port: int) -> str:
    """An address that a server listens on, as a URL."""
    host = EVERYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
