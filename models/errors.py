"""Errors between a chat request and its engine, named for what happened."""


class UnknownModel(LookupError):
    """The catalog has no model of this id."""

    def __init__(self, model_id: str, known: tuple[str, ...]) -> None:
        super().__init__(f"model {model_id!r} is not served here; choose one of: {', '.join(known)}")
        self.model_id = model_id
        self.known = known


class UnsupportedOption(ValueError):
    """The request uses a chat option that this service or this model does not offer."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"{option}: {reason}")
        self.option = option
        self.reason = reason


class InvalidField(ValueError):
    """A field has the right name and a value that cannot be used.

    `loc` is the path from the body's root, as in a validation issue: `("messages", 0, "content")`.
    """

    def __init__(self, loc: tuple[str | int, ...], message: str, *, kind: str = "value_error") -> None:
        super().__init__(message)
        self.loc = loc
        self.message = message
        self.kind = kind


class EngineError(Exception):
    """Base of everything an engine can answer instead of tokens."""


class EngineUnavailable(EngineError):
    """No replica took the request in time, or the queue is full. Nothing was generated."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineTimedOut(EngineUnavailable):
    """The work was begun, and ended because it took too long."""


class EngineFailed(EngineError):
    """The engine took the request and then died or answered with something other than a completion."""


class EngineDied(EngineFailed):
    """The engine, or its replica, died while it worked on the request; another may go on."""


class EngineRejected(EngineError):
    """The engine read the request and refused it: the caller's input is at fault.

    `param` is the body field that the engine named, or None. `is_too_long`: prompt and reply do not fit the context.
    """

    def __init__(self, message: str, *, param: str | None, is_too_long: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.is_too_long = is_too_long


class UnrenderablePrompt(ValueError):
    """The model's chat template or tokenizer can make no prompt of what the request holds in the field `parameter`."""

    def __init__(self, parameter: str) -> None:
        super().__init__("the model's chat template and tokenizer can make no prompt of this")
        self.parameter = parameter


class GrammarTooCostly(ValueError):
    """Compiling the grammar of a reply takes more than a request may."""


class GrammarRefused(ValueError):
    """The grammar of a reply is malformed."""


class GrammarTrialsBusy(Exception):
    """A grammar could not be tried out now. Nothing was generated."""
