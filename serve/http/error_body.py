"""The body of every error, as `/openapi.json` documents it."""

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field


class ValidationIssue(BaseModel):
    """One thing that is wrong with a request, and where."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="Machine-readable kind of the issue.")
    loc: list[str | int] = Field(
        description='Path to what is wrong, such as `["body", "messages", 0, "role"]`.'
    )
    msg: str = Field(description="What is wrong, in words.")
    input: Any = Field(default=None, description="The value found, if it is short.")
    ctx: dict[str, Any] | None = Field(default=None, description="The bounds or choices that were not met.")


class OpenAIError(BaseModel):
    """The same error in the form that OpenAI's clients print."""

    message: str = Field(description="What went wrong.")
    type: str = Field(description="Class of error, such as `invalid_request_error`.")
    param: str | None = Field(default=None, description="The field at fault, if one is.")
    code: str | None = Field(default=None, description="Machine-readable code.")


class ErrorBody(BaseModel):
    """Every error. `detail` is a list of issues where fields are invalid, and else a sentence."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "detail": "store: stored completions are not offered here; omit it or send false",
                    "error": {
                        "message": "store: stored completions are not offered here; omit it or send false",
                        "type": "invalid_request_error",
                        "param": "store",
                        "code": "unsupported_option",
                    },
                }
            ]
        }
    )

    detail: str | list[ValidationIssue] = Field(description="What went wrong.")
    error: OpenAIError = Field(description="The same for OpenAI's clients.")


class OpenAIErrorBody(BaseModel):
    """Every error under `/openai/v1`."""

    model_config: ClassVar[ConfigDict] = ConfigDict(title="OpenAIErrorBody")

    error: OpenAIError = Field(description="What went wrong.")
