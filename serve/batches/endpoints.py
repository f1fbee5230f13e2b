"""The endpoints that a batch can ask for: by the path of a route, how one request becomes a reply."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from billing.caller import Caller
from models.catalog import Catalog
from models.embedding_backends import Computed
from models.errors import InvalidField
from serve.chat.reply import ChatReply
from serve.chat.request import AskedChat
from serve.chat.service import ChatService
from serve.compress.request import CompressRequest
from serve.compress.service import CompressReply, CompressService
from serve.dialects.openai.chat_completions import OpenAIChatForm, OpenAIChatRequest
from serve.dialects.openai.completions import CompletionRequest
from serve.dialects.openai.responses.request import ResponseRequest
from serve.dialects.openai.responses.response import response_reply
from serve.http.request_body import check_shape
from serve.money.admission import MOST_RECORDED_BYTES, ChargedReply
from serve.retrieval.requests import EmbeddingRequest, embeddings_writer, prepare_embeddings
from serve.retrieval.service import RetrievalReply, RetrievalService, Write

# As the dialect's routes are called; a batch may name them with it or without.
PREFIX = "/openai"
# Of a number of a vector in a reply, with its comma, or in base64.
_LEAST_BYTES = 4
# A caller, the request's body, and its id. Raises what the route would.
Ask = Callable[[Caller, Any, str], ChargedReply]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`models` are those that its requests may name."""

    ask: Ask
    models: frozenset[str]


Endpoints = Mapping[str, Endpoint]


def plain_path(path: str) -> str:
    """The name under which `Endpoints` has it."""
    return path.removeprefix(PREFIX)


def chat_endpoint(service: ChatService, models: frozenset[str]) -> Endpoint:
    def ask(caller: Caller, body: Any, request_id: str) -> ChargedReply:
        asked = check_shape(body, OpenAIChatRequest)
        if asked.stream:
            raise _no_stream()
        return _reply(service, caller, asked.asked(), request_id)

    return Endpoint(ask, models)


def completions_endpoint(service: ChatService, models: frozenset[str]) -> Endpoint:
    def ask(caller: Caller, body: Any, request_id: str) -> ChargedReply:
        asked = check_shape(body, CompletionRequest)
        if asked.stream:
            raise _no_stream()
        return _reply(service, caller, asked.asked(), request_id)

    return Endpoint(ask, models)


def _reply(service: ChatService, caller: Caller, asked: AskedChat, request_id: str) -> ChatReply:
    chat = service.prepare(caller, asked, most_bytes=MOST_RECORDED_BYTES)
    return ChatReply(service, caller, chat, request_id, OpenAIChatForm(includes_usage=True))


def responses_endpoint(service: ChatService, models: frozenset[str]) -> Endpoint:
    def ask(caller: Caller, body: Any, request_id: str) -> ChargedReply:
        shape = check_shape(body, ResponseRequest)
        if shape.stream:
            raise _no_stream()
        return response_reply(service, caller, shape, request_id)

    return Endpoint(ask, models)


def compress_endpoint(service: CompressService) -> Endpoint:
    def ask(caller: Caller, body: Any, request_id: str) -> ChargedReply:
        asked = check_shape(body, CompressRequest)
        if asked.compression is not None and asked.compression.retain_s:
            raise InvalidField(("compression", "retain_s"), "a batch keeps no originals")
        return CompressReply(service, caller, service.prepare(asked.model, asked), request_id)

    return Endpoint(ask, frozenset(service.model_ids))


def embeddings_endpoint(service: RetrievalService) -> Endpoint:
    # Of the vectors that each model was seen to make: nothing says it before.
    widths: dict[str, int] = {}

    def ask(caller: Caller, body: Any, request_id: str) -> ChargedReply:
        asked = check_shape(body, EmbeddingRequest)
        prepared = prepare_embeddings(service.models, asked)
        model_id = prepared.served.id
        _check_vectors(len(prepared.job.texts), asked.dimensions or widths.get(model_id, 1))
        write = embeddings_writer(model_id, asked.encoding_format)
        if asked.dimensions is None:
            write = _noting_width(widths, model_id, write)
        return RetrievalReply(service, caller, prepared, request_id, write)

    models = frozenset(model.id for model in service.models.models if model.kind == "embedding")
    return Endpoint(ask, models)


def _check_vectors(texts: int, width: int) -> None:
    """Raises `InvalidField` where the reply could not be kept, before any work is done for it."""
    most = MOST_RECORDED_BYTES // _LEAST_BYTES
    if texts * width > most:
        raise InvalidField(
            ("input",),
            f"{texts} vectors of {width} numbers are more than a line of a batch keeps; ask for fewer",
        )


def _noting_width(widths: dict[str, int], model_id: str, write: Write) -> Write:
    def noting(computed: Computed, charged: dict[str, Any], request_id: str) -> Iterator[bytes]:
        widths[model_id] = computed.width
        return write(computed, charged, request_id)

    return noting


def endpoints_of(
    catalog: Catalog, chat: ChatService, compress: CompressService | None, retrieval: RetrievalService
) -> Endpoints:
    """Endpoints that this server can run in batches."""
    models = frozenset(model.id for model in catalog.models)
    found = {
        "/v1/chat/completions": chat_endpoint(chat, models),
        "/v1/completions": completions_endpoint(chat, models),
        "/v1/responses": responses_endpoint(chat, models),
    }
    if compress is not None:
        found["/v1/compress"] = compress_endpoint(compress)
    embeddings = embeddings_endpoint(retrieval)
    if embeddings.models:
        found["/v1/embeddings"] = embeddings
    return found


def _no_stream() -> InvalidField:
    return InvalidField(("stream",), "a request of a batch is not streamed")
