"""The HTTP client of pith's own commands and tools: what they ask a running pith, and one sentence for any failure."""


class PithError(Exception):
    """pith refused, failed or could not be reached. The message is for the caller; `status` is the answer's, if any."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status
