"""Answers to what never becomes a request of the application: the contract's error body, as bytes to send."""

from http import HTTPStatus

from serve.http.errors import Problem
from serve.http.request_id import accept_request_id


class BadHttp(Exception):
    """The connection carries something invalid; it ends with this status, if one can still be sent."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


def refusal(problem: BadHttp) -> bytes:
    """The whole response, after which the connection closes."""
    response = Problem(problem.status, "invalid_request_error", "bad_http", problem.detail).response()
    lines = [
        f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}",
        "connection: close",
        f"x-request-id: {accept_request_id(None)}",
    ]
    lines += [f"{name.decode()}: {value.decode()}" for name, value in response.raw_headers]
    return "\r\n".join([*lines, "", ""]).encode() + bytes(response.body)
