"""Who may use the admin API is decided before anything of a request's body is read."""

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from serve.http.errors import MissingKey, WrongAdminKey
from serve.http.limits import TooManyWrongKeys
from serve.ops.administration import Gate
from serve.ops.refusals import problem

ADMIN = "/admin/"


class AdmissionMiddleware:
    """Answers whom the gate does not let in, whatever they sent and whether or not there is such a route."""

    def __init__(self, app: ASGIApp, gate: Gate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(ADMIN):
            request = Request(scope)
            try:
                request.state.admin = self._gate.admitted(request)
            except (MissingKey, WrongAdminKey, TooManyWrongKeys) as error:
                await problem(error).response()(scope, receive, send)
                return
        await self._app(scope, receive, send)
