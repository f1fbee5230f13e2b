"""A retrieval request from its checked body to its settled cost: the most it can use, the hold, the work, the reply."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from starlette.responses import Response, StreamingResponse

from billing.caller import Caller
from billing.price import MAX_TOKENS
from models.embedding_backends import Computed, RetrievalJob, RetrievalKind, RetrievalModel
from models.engine import TokenUsage
from models.errors import EngineFailed, EngineRejected, InvalidField, UnknownModel
from serve.config.compression_models import CompressionModelSettings, spec_of
from serve.config.retrieval_models import RetrievalModelSettings, host_of
from serve.config.settings import Settings
from serve.http.replies import Client
from serve.metrics.charged_requests import RetrievalMetrics
from serve.money.admission import Admissions, Admitted, ChargedReply
from serve.money.held_request import AlsoWrite, MoreThanHeld, MostTokens, Receipt, TokenTerms
from serve.money.prices import charged_fields
from serve.money.prompt_bound import tokens_per_byte_of
from serve.tracing.request_record import step


@dataclass(frozen=True, slots=True)
class ServedRetrieval:
    """`context_length`: tokens of one text at most. `tokens_per_byte`: the most that a byte of a text can be; None
    where nothing is proven. `shortens`: whether its vectors may be cut to fewer dimensions."""

    id: str
    name: str
    kind: RetrievalKind
    model: RetrievalModel
    context_length: int
    tokens_per_byte: int | None
    shortens: bool
    # Of all texts of one request: they are counted before anything else bounds them.
    longest_bytes: int


@dataclass(frozen=True, slots=True)
class RetrievalModels:
    """All of a server's, in the operator's order."""

    models: tuple[ServedRetrieval, ...]

    def get(self, kind: RetrievalKind, wanted: str | None) -> ServedRetrieval:
        """The model that was asked for, or the first of its kind. Raises `UnknownModel`."""
        found = [model for model in self.models if model.kind == kind]
        for model in found:
            if wanted in (None, model.id):
                return model
        raise UnknownModel(wanted or "", tuple(model.id for model in found))


def served_models(
    settings: Sequence[RetrievalModelSettings],
    compressors: Sequence[CompressionModelSettings],
    models: Mapping[str, RetrievalModel],
) -> RetrievalModels:
    """Those of the configuration that run."""
    return RetrievalModels(
        tuple(
            ServedRetrieval(
                id=model.id,
                name=model.name,
                kind=model.kind,
                model=models[model.id],
                context_length=model.context_length,
                tokens_per_byte=_tokens_per_byte(host),
                shortens=model.matryoshka,
                longest_bytes=(host or model).max_input_bytes,
            )
            for model, host in ((model, host_of(model, compressors)) for model in settings)
            if model.id in models
        )
    )


def _tokens_per_byte(host: CompressionModelSettings | None) -> int | None:
    """The bound of a model that a compressor hosts. Of one in its own process nothing is proven: its tokenizer may be
    elsewhere, and adds tokens."""
    return None if host is None else tokens_per_byte_of(spec_of(host).tokenizer)


logger = logging.getLogger("pith.retrieval")
_TOO_MANY = f"more than {MAX_TOKENS:,} tokens, the most of one request"


@dataclass(frozen=True, slots=True)
class PreparedRetrieval:
    """A request that passed every check that needs no ledger and no model. `fields` are the names that its route has
    for the job's, where an error tells of them."""

    served: ServedRetrieval
    job: RetrievalJob
    # What usage events call it.
    route: str
    fields: tuple[tuple[str, str], ...] = ()

    def rejected(self, error: EngineRejected) -> EngineRejected:
        """The same in the route's own words."""
        name, dot, rest = (error.param or "").partition(".")
        renamed = dict(self.fields).get(name, name)
        param = f"{renamed}{dot}{rest}" or None
        return EngineRejected(error.message, param=param, is_too_long=error.is_too_long)


# What is written with the settlement of what was computed.
AlsoWriteComputed = Callable[[Computed], AlsoWrite | None]


def prepared(
    served: ServedRetrieval, job: RetrievalJob, route: str, *fields: tuple[str, str]
) -> PreparedRetrieval:
    """Raises `InvalidField` for more text than the model takes at once, or a query that may be more tokens with all
    its texts than can be paid for."""
    names, most = dict(fields), served.longest_bytes
    texts = "input" if job.does == "embed" else names.get("documents", "documents")
    size = sum(map(_size, job.texts)) + _sizes(job.queries)
    if size > most:
        raise InvalidField(
            (texts,), f"all texts hold {size:,} bytes; {served.id} takes at most {most:,} at once"
        )
    if most_tokens(served, job) > MAX_TOKENS:
        name = names.get("query", "query") if job.queries else texts
        raise InvalidField((name,), f"with all texts it may be {_TOO_MANY}")
    return PreparedRetrieval(served, job, route, fields)


def most_tokens(served: ServedRetrieval, job: RetrievalJob) -> int:
    """No more can be read of the job: what is longer than the model's context is refused or cut. A number that costs
    nothing to know; proven where `served.tokens_per_byte` is."""
    longest = served.context_length if job.cut is None else min(job.cut, served.context_length)
    each = served.tokens_per_byte or 1
    times = len(job.texts) if len(job.queries) == 1 else 1
    asked = times * sum(min(_size(query) * each, served.context_length) for query in job.queries)
    return asked + sum(min(_size(text) * each, longest) for text in job.texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalService:
    """Everything between a parsed request and its model."""

    models: RetrievalModels
    admissions: Admissions
    metrics: RetrievalMetrics

    def token_terms(self, caller: Caller, prepared: PreparedRetrieval) -> TokenTerms:
        """The most that it can use. Texts given as tokens are counted already; where nothing is proven of the model's
        tokenizer, all are counted by the model before anything is held."""
        served, job = prepared.served, prepared.job

        async def count() -> MostTokens:
            tokens = (await _computed(prepared, job.counting(), caller)).tokens
            if tokens > MAX_TOKENS:
                raise EngineRejected(_TOO_MANY, param=None, is_too_long=True)
            return MostTokens(tokens, 0)

        return TokenTerms(
            served.id,
            MostTokens(most_tokens(served, job), 0),
            MostTokens(1, 0),
            count,
            bound_is_proven=served.tokens_per_byte is not None,
        )

    async def compute(
        self, prepared: PreparedRetrieval, admitted: Admitted, client: Client, also_write: AlsoWriteComputed
    ) -> tuple[Computed, Receipt]:
        """Hold the worst-case cost, compute, and settle; a failure or a client that leaves gives the hold back.

        Raises what `Admitted.hold`, `HeldRequest.settle` and `RetrievalModel.compute` raise.
        """
        (tokens,) = admitted.parts
        observed = self.metrics.begin(prepared.served.id, len(prepared.job.texts))
        async with admitted.hold(tokens, observed, client=client) as held:
            computed = await _computed(prepared, prepared.job, admitted.caller)
            _check(computed, prepared)
            try:
                held.use(TokenUsage(prompt_tokens=computed.tokens))
            except MoreThanHeld as error:
                raise EngineFailed(str(error)) from None
            return computed, await held.settle("completed", also_write=also_write(computed))


def retrieval_service(
    settings: Settings,
    models: Mapping[str, RetrievalModel],
    admissions: Admissions,
    metrics: RetrievalMetrics,
) -> RetrievalService:
    """Over those of the configured models that run."""
    served = served_models(settings.retrieval_models, settings.compression.models, models)
    return RetrievalService(models=served, admissions=admissions, metrics=metrics)


async def _computed(prepared: PreparedRetrieval, job: RetrievalJob, caller: Caller) -> Computed:
    try:
        with step(f"{job.does} {prepared.served.id}", "client"):
            return await prepared.served.model.compute(job, payer=caller.project_id)
    except EngineRejected as error:
        raise prepared.rejected(error) from error


def _check(computed: Computed, prepared: PreparedRetrieval) -> None:
    """Raises `EngineFailed` for an answer that is not a row for each text."""
    if len(computed.data) != len(prepared.job.texts) * computed.width * 4 or not computed.width:
        raise EngineFailed(f"{prepared.served.id}: it did not answer with a row for each text")


def _size(text: str | tuple[int, ...]) -> int:
    return len(text.encode()) if isinstance(text, str) else len(text)


def _sizes(texts: Sequence[str]) -> int:
    return sum(len(text.encode()) for text in texts)


# Writes the body: what was computed, the fields of its charge, and the request's id.
Write = Callable[[Computed, "dict[str, Any]", str], Iterator[bytes]]


class RetrievalReply(ChargedReply):
    """Charged before the first byte of the reply leaves."""

    def __init__(
        self,
        service: RetrievalService,
        caller: Caller,
        prepared: PreparedRetrieval,
        request_id: str,
        write: Write,
    ) -> None:
        terms = [service.token_terms(caller, prepared)]
        super().__init__(service.admissions, caller, request_id, prepared.route, terms, logger)
        self._service = service
        self._prepared = prepared
        self._write = write

    async def answer(self, admitted: Admitted, client: Client) -> Response:
        computed, receipt = await self._service.compute(
            self._prepared, admitted, client, lambda found: self.also_write(partial(self._pieces, found))
        )
        headers = admitted.reply_headers(receipt.settlement.status)
        pieces = self._pieces(computed, receipt)
        return StreamingResponse(_in_turns(pieces), headers=headers, media_type="application/json")

    def _pieces(self, computed: Computed, receipt: Receipt) -> Iterator[bytes]:
        return self._write(computed, charged_fields(receipt), self.request_id)


async def _in_turns(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Each piece is written when the one before it has been taken; between two, other requests have their turn."""
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)
