"""What `POST /openai/v1/batches` takes."""

from typing import Annotated, Literal

from pydantic import Field

from serve.http.request_body import RequestShape, at_most

MOST_METADATA = 16
NO_NUL = r"^[^\x00]*$"
MetadataKey = Annotated[str, Field(max_length=64, pattern=NO_NUL)]
MetadataValue = Annotated[str, Field(max_length=512, pattern=NO_NUL)]


class BatchRequest(RequestShape):
    """A batch of requests, as OpenAI's clients ask for it."""

    input_file_id: str = Field(min_length=1, max_length=64, description="A file with `purpose: batch`.")
    endpoint: str = Field(max_length=64, description="The route that all of its requests are for.")
    completion_window: Literal["24h"] = Field(
        description="Within which its requests are run; what has not run by then is given up."
    )
    metadata: Annotated[dict[MetadataKey, MetadataValue], at_most(MOST_METADATA)] | None = Field(
        default=None,
        max_length=MOST_METADATA,
        description="What the caller wants to find in it again.",
    )
