"""The rate limits of a project as the headers that clients know from OpenAI."""

from billing.caller import LimitState


def rate_limit_headers(state: LimitState) -> dict[str, str]:
    """`x-ratelimit-*` for the limits that the project has; none for a project without limits."""
    headers: dict[str, str] = {}
    for name, window in (("requests", state.requests), ("tokens", state.tokens)):
        if window is not None:
            headers[f"x-ratelimit-limit-{name}"] = str(window.limit)
            headers[f"x-ratelimit-remaining-{name}"] = str(window.remaining)
            headers[f"x-ratelimit-reset-{name}"] = f"{window.reset_s:g}s"
    return headers
