"""Retrieval jobs and their answers as messages, and back."""

from array import array
from dataclasses import fields

from compression.retrieval.job import Answer, RetrievalJob, Text
from compression.workers.codec import raise_fault, text_from, text_to
from compression.workers.message import Message

RETRIEVE = "retrieve"
_TEXTS = ("texts", "queries")
_OPTIONS = tuple(field.name for field in fields(RetrievalJob) if field.name not in _TEXTS)
_TOKENS = "I"


def job_message(job: RetrievalJob) -> Message:
    """Texts follow the queries; those that are tokens are numbered in the header."""
    header = {
        "do": RETRIEVE,
        "queries": len(job.queries),
        "tokens": [at for at, text in enumerate(job.texts) if not isinstance(text, str)],
        **{name: getattr(job, name) for name in _OPTIONS},
    }
    return Message(header, (*map(text_to, job.queries), *map(_blob, job.texts)))


def job_of(message: Message) -> RetrievalJob:
    count, tokens = message.header["queries"], set(message.header["tokens"])
    queries, texts = message.blobs[:count], message.blobs[count:]
    return RetrievalJob(
        texts=tuple(
            tuple(array(_TOKENS, blob)) if at in tokens else text_from(blob) for at, blob in enumerate(texts)
        ),
        queries=tuple(map(text_from, queries)),
        **{name: message.header[name] for name in _OPTIONS},
    )


def answer_message(answer: Answer) -> Message:
    return Message({"tokens": answer.tokens, "width": answer.width}, (answer.data,))


def answer_of(message: Message) -> Answer:
    """Raises a fault as its error."""
    raise_fault(message)
    (data,) = message.blobs
    return Answer(message.header["tokens"], message.header["width"], data)


def _blob(text: Text) -> bytes:
    return text_to(text) if isinstance(text, str) else array(_TOKENS, text).tobytes()
