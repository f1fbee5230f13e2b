"""All that crosses between the processes of one server, written and read by one version: run by the other one too.

python -m tests.two_versions.wire write > samples.json
python -m tests.two_versions.wire read < samples.json
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import importlib
import json
import pickle
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json

from models.counted_tokens import PromptSource, TokenIds
from models.engine import EngineChunk, EngineFault, EngineRequest, TokenUsage
from serve.cluster.replicas import port
from serve.config.settings import Settings

Samples = dict[str, list[dict[str, Any]]]
# Pickled by Ray: what a handle's call takes and gives, and what a replica is started with.
PICKLED = {
    "compression.pipeline.compression_model": (
        "CompressionFault",
        "CompressionRequest",
        "CompressionResult",
        "JobTerms",
        "Receipt",
        "Size",
        "Sized",
        "UnitScore",
    ),
    "models.embedding_backends": ("Computed", "RetrievalJob"),
    "models.engine": ("EngineFault", "EngineRequest"),
    "models.engine_kinds": ("EngineSpec",),
    "serve.cluster.deployments.chat": ("ReplicaTerms",),
    "serve.fairness.model_turns": ("TurnTerms",),
    "serve.logs.outlet": ("LogPlan",),
}
TOKEN = "t" * port.TOKEN_BYTES
GIVEN: dict[str, Any] = {
    "options": {"temperature": 0, "seed": 2**70, "stop": ["a", "ü"]},
    "max_tokens_field": None,
    "adapter_folder": "/adapters/one",
    "project_id": "prj_1",
    "project_weight": 3,
    "background": True,
    "keep_reply": 5,
    "tells_tokens": True,
    "score": (1, 2**32 - 1),
    "form": "completion",
    "prompts": ("one", (1, 2, 3)),
    "form_options": {"echo": True},
    "trace_headers": {"traceparent": "00-1-2-01"},
    "survives": True,
}
# A replica that does not read these would answer another request: it is not asked.
REFUSED: dict[str, Any] = {"said": (1, 2**32 - 1), "tier": "flex"}


def requests() -> Iterator[EngineRequest]:
    """A bare one, one with each field of `GIVEN` that this version has, and one with all."""
    bare = EngineRequest("id", "model", ({"role": "user", "content": "hi"},), 16, True, "salt")
    known = {name: value for name, value in GIVEN.items() if hasattr(bare, name)}
    for given in ({}, *({name: value} for name, value in known.items()), known):
        yield dataclasses.replace(bare, **given)


def items() -> Iterator[EngineChunk | EngineFault]:
    """Of replies to requests that both versions know: tokens are told only where a request asks for them."""
    source = PromptSource("aa" * 32, None)
    told = TokenIds(((1, 2), (3,)), ((4, 5), (2**32 - 1,)), source)
    for finished in (False, True):
        for data in (b"", b"data: {}\n\n", bytes(range(256))):
            for digest in (None, "ab" * 32):
                yield EngineChunk(data, TokenUsage(7, 3, 4, 1), finished, (), digest)
    yield EngineChunk(b"{}", TokenUsage(7, 3), True, (0, 2**32 - 1))
    yield EngineChunk(b"{}", TokenUsage(7, 3), True, (), "ab" * 32, told)
    for kind in ("rejected", "unavailable", "timed_out", "failed", "died"):
        yield EngineFault(kind, "why", "tools", retry_after_s=7)  # type: ignore[arg-type]


def pickled() -> Iterator[tuple[str, Any]]:
    """One of each class, with a value of its own in each field; and a server's settings."""
    for module, names in PICKLED.items():
        for name in names:
            of = getattr(importlib.import_module(module), name)
            yield name, of(**{field.name: f"its {field.name}" for field in dataclasses.fields(of)})
    model = {"id": "m", "name": "M", "blurb": "b", "checkpoint": "embedded:none", "context_length": 64}
    price = {"input_usd_per_mtok": "1", "output_usd_per_mtok": "2", "minimum_request_usd": "0"}
    yield "Settings", Settings.model_validate({"models": [{**model, "price": price}]})


def asked(request: EngineRequest) -> bytes:
    """For a replica that says nothing of what it reads."""
    try:
        from serve.cluster.replicas.address import Address
    except ImportError:
        return port.asked_bytes(request, TOKEN)  # type: ignore[arg-type]
    return port.asked_bytes(request, Address("", 0, TOKEN))


def request_in(raw: bytes) -> EngineRequest:
    raw = raw[port.ASKED.size :]
    if hasattr(port, "read_request"):
        found: EngineRequest = port.read_request(raw)
        return found
    from serve.cluster.replicas.address import request_of

    return request_of(from_json(raw))


def write() -> Samples:
    written = {
        "requests": [("EngineRequest", one, asked(one)) for one in requests()],
        "items": [(type(one).__name__, one, port.frame(one)) for one in items()],
        "pickled": [(name, one, pickle.dumps(one)) for name, one in pickled()],
    }
    return {
        way: [{"name": n, "fields": plain(v), "bytes": base64.b64encode(b).decode()} for n, v, b in found]
        for way, found in written.items()
    }


def read(samples: Samples) -> Samples:
    """The fields of each as this version finds them, or why it does not; and its own defaults."""
    readers = {"requests": request_in, "items": _item, "pickled": pickle.loads}
    return {way: [_read(readers[way], one) for one in found] for way, found in samples.items()}


def _read(reader: Any, sample: Mapping[str, Any]) -> dict[str, Any]:
    try:
        found = reader(base64.b64decode(sample["bytes"]))
        return {"fields": plain(found), "defaults": _defaults(found)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _item(raw: bytes) -> Any:
    async def first() -> Any:
        stream = asyncio.StreamReader()
        stream.feed_data(raw)
        stream.feed_eof()
        return await port.read_frame(stream)

    return asyncio.run(first())


def plain(value: Any) -> Any:
    """As JSON has it."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, BaseModel):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if isinstance(value, str | int | float | None) else str(value)


def _defaults(value: Any) -> dict[str, Any]:
    if not dataclasses.is_dataclass(value):
        return {}
    found = {}
    for field in dataclasses.fields(value):
        if field.default_factory is not dataclasses.MISSING:
            found[field.name] = plain(field.default_factory())
        elif field.default is not dataclasses.MISSING:
            found[field.name] = plain(field.default)
    return found


def troubles(written: Samples, found: Samples) -> list[str]:
    """Where a version found something else than the other one wrote. What it does not know, it does without; and what
    was not written has its default."""
    wrong = []
    for way, samples in written.items():
        for sample, one in zip(samples, found[way], strict=True):
            what = f"{way}: {sample['name']}"
            if "error" in one:
                wrong.append(f"{what}: {one['error']}")
                continue
            wrong += [f"{what}: {line}" for line in _differences(sample["fields"], one["fields"])]
            fresh = {name: value for name, value in one["fields"].items() if name not in sample["fields"]}
            wrong += [
                f"{what}: {name} is {value!r}, which nobody wrote"
                for name, value in fresh.items()
                if one["defaults"] and one["defaults"].get(name) != value
            ]
    return wrong


def _differences(written: Any, found: Any, path: str = "") -> Iterator[str]:
    if isinstance(written, dict) and isinstance(found, dict):
        for name in written.keys() & found.keys():
            yield from _differences(written[name], found[name], f"{path}.{name}")
    elif isinstance(written, list) and isinstance(found, list) and len(written) == len(found):
        for index, (one, other) in enumerate(zip(written, found, strict=True)):
            yield from _differences(one, other, f"{path}[{index}]")
    elif written != found:
        yield f"{path} was {written!r}, and is read as {found!r}"


if __name__ == "__main__":
    samples = write() if sys.argv[1] == "write" else read(json.load(sys.stdin))
    print(json.dumps(samples).replace('{"name"', '\n{"name"'))
