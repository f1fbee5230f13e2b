"""The objects nested in a chat request: messages, tools, the response format and stream options.

They are typed apart from the request so that each has its own entry in `/openapi.json`.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

STRICT = ConfigDict(strict=True, allow_inf_nan=False)

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
# The first bad object refuses the list; else a body of a million of them costs a million issues.
Objects = Annotated[list[dict[str, Any]], Field(fail_fast=True)]
FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]

_OBJECTS: TypeAdapter[list[dict[str, Any]]] = TypeAdapter(Objects, config=STRICT)


def text_or_parts(value: Any) -> Any:
    """A message's content, if it is of the right type."""
    # A plain union would add its branch's name to the issue's path, which must name the field and no more.
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list):
        return _OBJECTS.validate_python(value)
    raise PydanticCustomError("content_type", "Input should be a string or a list of objects")


def _required_for(kind: str) -> Callable[[Any, ValidationInfo], Any]:
    """Refuse a missing field of an object whose `type` is `kind`; the field needs `validate_default`."""

    def present(value: Any, info: ValidationInfo) -> Any:
        if value is None and info.data.get("type") == kind:
            raise PydanticCustomError("missing", "Field required when the type is {kind}", {"kind": kind})
        return value

    return present


class Message(BaseModel):
    """One turn of the conversation. Extra properties are allowed; those unknown to us have no effect."""

    model_config = ConfigDict(
        strict=True,
        extra="allow",
        allow_inf_nan=False,
        json_schema_extra={"examples": [{"role": "user", "content": "Say hello."}]},
    )

    role: Role = Field(
        description="The author's role. `developer` is read as `system`, and `function` as `tool`, where the "
        "model's chat template has no such role."
    )
    content: Annotated[
        str | list[dict[str, Any]] | None,
        PlainValidator(text_or_parts, json_schema_input_type=str | list[dict[str, Any]] | None),
    ] = Field(
        default=None,
        description='The text, or a list of content parts such as `{"type": "text", "text": "…"}`. A message '
        "without content and without tool calls is an empty text.",
    )
    tool_calls: Objects | None = Field(default=None, description="The calls an assistant's message made.")

    def fields(self) -> dict[str, Any]:
        """Everything the caller sent in this message, extra properties included."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class StreamOptions(BaseModel):
    """A stream's report of usage. The last event before `[DONE]` carries it whatever is asked here."""

    model_config = STRICT

    include_usage: bool | None = Field(default=None, description="No effect: the final event has `usage`.")
    continuous_usage_stats: bool | None = Field(
        default=None, description="True adds the usage so far to every chunk."
    )


class JsonSchemaFormat(BaseModel):
    """The schema that a reply must obey."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, serialize_by_alias=True)

    name: FunctionName = Field(description="A name for the schema: letters, digits, `_` and `-`, 1 to 64.")
    description: str | None = Field(default=None, description="What the schema is for.")
    schema_: dict[str, Any] = Field(alias="schema", description="A JSON Schema.")
    strict: bool | None = Field(default=None, description="Accepted; the schema is always enforced.")


class ResponseFormat(BaseModel):
    """The form of the reply: free text, any JSON object, or JSON that obeys a schema."""

    model_config = ConfigDict(
        strict=True,
        allow_inf_nan=False,
        json_schema_extra={
            "if": {"properties": {"type": {"const": "json_schema"}}, "required": ["type"]},
            "then": {"properties": {"json_schema": {"type": "object"}}, "required": ["json_schema"]},
        },
    )

    type: Literal["text", "json_object", "json_schema"] = Field(description="Which form.")
    json_schema: JsonSchemaFormat | None = Field(
        default=None, validate_default=True, description="Required when `type` is `json_schema`."
    )

    _present = field_validator("json_schema")(_required_for("json_schema"))


def _only_functions(schema: dict[str, Any]) -> None:
    """Document what is taken: another type gets a 400 of its own, and `function` is there."""
    schema["properties"]["type"]["enum"] = ["function"]
    function = schema["properties"]["function"]
    function.pop("default", None)
    (function["$ref"],) = [kind["$ref"] for kind in function.pop("anyOf") if "$ref" in kind]
    schema["required"] = ["type", "function"]


_FUNCTIONS = ConfigDict(strict=True, allow_inf_nan=False, json_schema_extra=_only_functions)


class FunctionDefinition(BaseModel):
    """A function that the model may call."""

    model_config = STRICT

    name: FunctionName = Field(description="Letters, digits, `_` and `-`, 1 to 64.")
    description: str | None = Field(default=None, description="What the function does; the model reads it.")
    parameters: dict[str, Any] | None = Field(default=None, description="A JSON Schema of the arguments.")
    strict: bool | None = Field(default=None, description="Asks that arguments obey the schema.")


class Tool(BaseModel):
    """A tool offered to the model. Only functions are supported; any other type is a 400."""

    model_config = _FUNCTIONS

    type: str = Field(max_length=64, description="`function`.", examples=["function"])
    function: FunctionDefinition | None = Field(
        default=None, validate_default=True, description="Required when `type` is `function`."
    )

    _present = field_validator("function")(_required_for("function"))


class NamedFunction(BaseModel):
    """The name of one of the offered functions."""

    model_config = STRICT

    name: FunctionName = Field(description="The function to call.")


class NamedToolChoice(BaseModel):
    """Makes the model call one function. Only functions are supported; any other type is a 400."""

    model_config = _FUNCTIONS

    type: str = Field(max_length=64, description="`function`.", examples=["function"])
    function: NamedFunction | None = Field(
        default=None, validate_default=True, description="Required when `type` is `function`."
    )

    _present = field_validator("function")(_required_for("function"))
