"""What can go wrong with webhooks, named for what happened."""

from billing.errors import BillingError


class InvalidEndpoint(BillingError, ValueError):
    """A URL or an event type of a webhook cannot be used; the message names it."""


class UnknownEndpoint(BillingError, LookupError):
    """No webhook has this id, or it was removed."""

    def __init__(self, ref: str) -> None:
        super().__init__(f"no webhook has the id {ref!r}")


class UnknownEvent(BillingError, LookupError):
    """Nothing of this event is kept for any webhook that is active."""

    def __init__(self, ref: str) -> None:
        super().__init__(f"no event {ref!r} is kept for a webhook that is active")


class TooManyEndpoints(BillingError):
    """The workspace, or the whole service, has as many webhooks as it may."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"there are {most} webhooks already, which is all that there may be; remove one first"
        )


class SecretUnreadable(BillingError):
    """A webhook's secret cannot be opened: it was sealed with another pepper."""

    def __init__(self, endpoint_id: str) -> None:
        super().__init__(
            f"the secret of webhook {endpoint_id} was sealed with another pepper: restore the pepper, or rotate it"
        )
