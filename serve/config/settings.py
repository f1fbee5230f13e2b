"""The configuration file, typed once. Every key has a unit and a description, and an unknown key is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from serve.config.billing import IN_MEMORY, BatchSettings, BillingSettings, ResponseSettings, WebhookSettings
from serve.config.chat_models import ModelSettings, with_adapter, with_their_bases
from serve.config.compression_models import CompressionSettingsSection
from serve.config.paths import ConfigError, anchor_of, require_own, text_of
from serve.config.retrieval_models import RETRIEVAL_KINDS, RetrievalModelSettings, host_of
from serve.config.server_settings import (
    NODE,
    DemoSettings,
    LogSettings,
    MetricsSettings,
    OpsSettings,
    RaySettings,
    ServerSettings,
    TracingSettings,
    TransparencySettings,
)
from serve.config.turns import EngineGroup, TurnSettings, groups_of, problems_of_turns
from serve.config.values import Section, parse_node, with_files

COMMIT = re.compile(r"[0-9a-f]{40}")


def sorted_by_kind(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same with the embedding and rerank models in `retrieval_models`, a key that no file has itself."""
    chat, others = _apart(document)
    if not others:
        return document
    given = document["models"]
    return {
        **document,
        "models": [given[at] for at in chat],
        "retrieval_models": [given[at] for at in others],
    }


def place_in_file(loc: Sequence[int | str], document: Mapping[str, Any]) -> Sequence[int | str]:
    """The place in the file of what was found at `loc` after sorting."""
    if len(loc) < 2 or loc[0] not in ("models", "retrieval_models") or not isinstance(loc[1], int):
        return loc
    chat, others = _apart(document)
    return ("models", (chat if loc[0] == "models" else others)[loc[1]], *loc[2:])


def _apart(document: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Which entries of `models` are chat models, as far as can be told yet, and which are of another kind."""
    models = document.get("models")
    chat: list[int] = []
    others: list[int] = []
    for at, entry in enumerate(models if isinstance(models, list) else []):
        is_other = isinstance(entry, dict) and entry.get("kind") in RETRIEVAL_KINDS
        (others if is_other else chat).append(at)
    return chat, others


class Settings(Section):
    state_dir: Path = Field(Path("var"), description="Folder for what the server writes.")
    nodes: list[str] = Field(
        [],
        description="Machines that the file is for, as `8xH100-80GB` or `cpu:16-64GB`; `pith config check` uses them.",
    )
    server: ServerSettings = ServerSettings()
    ops: OpsSettings = OpsSettings()
    metrics: MetricsSettings = MetricsSettings()
    ray: RaySettings = RaySettings()
    billing: BillingSettings = BillingSettings()
    demo: DemoSettings = DemoSettings()
    models: list[ModelSettings] = Field(
        description="The catalog, in order; the first is the default model. An entry of `kind: embedding` or `rerank` "
        "is another kind of model, with keys of its own; `chat` is the default."
    )
    retrieval_models: list[RetrievalModelSettings] = Field(
        [], description="Set by `models`; no key of a file."
    )
    turns: list[TurnSettings] = Field(
        [], description="Chat models that take turns on the same GPUs; one of each entry is awake."
    )
    compression: CompressionSettingsSection = CompressionSettingsSection()
    batches: BatchSettings = BatchSettings()
    responses: ResponseSettings = ResponseSettings()
    logs: LogSettings = LogSettings()
    log: TransparencySettings = TransparencySettings()
    webhooks: WebhookSettings = WebhookSettings()
    tracing: TracingSettings = TracingSettings()

    @model_validator(mode="before")
    @classmethod
    def _models_by_kind(cls, document: Any) -> Any:
        if not isinstance(document, dict):
            return document
        if "retrieval_models" in document:
            raise ValueError("retrieval_models: unknown key; a model of any kind is an entry of models")
        return sorted_by_kind(document)

    @field_validator("nodes")
    @classmethod
    def _machines(cls, nodes: list[str]) -> list[str]:
        for node in nodes:
            parse_node(node)
        return nodes

    @field_validator("models")
    @classmethod
    def _different_models(cls, models: list[ModelSettings]) -> list[ModelSettings]:
        if not models:
            raise ValueError("the catalog is empty")
        ids = [model.id for model in models]
        for model_id in ids:
            if ids.count(model_id) > 1:
                raise ValueError(f"model id {model_id!r} is listed twice")
        return with_their_bases(models)

    @model_validator(mode="after")
    def _retrieval_models_fit(self) -> Settings:
        taken = {model.id for model in self.models} | {model.id for model in self.compression.models}
        for model in self.retrieval_models:
            if model.id in taken:
                raise ValueError(f"model id {model.id!r} is listed twice")
            taken.add(model.id)
            host_of(model, self.compression.models)
        return self

    @model_validator(mode="after")
    def _turns_can_be_taken(self) -> Settings:
        if problems := list(problems_of_turns(self.turns, self.models, self.server)):
            raise ValueError("; ".join(problems))
        return self

    @model_validator(mode="after")
    def _shared_limits_need_shared_storage(self) -> Settings:
        joined = self.ray.address is not None
        if joined and self.server.ingress_replicas > 1 and self.billing.rate_limit_storage == IN_MEMORY:
            raise ValueError(
                "ray.address names a cluster, whose ingress processes (server.ingress_replicas) may be on several "
                "machines, so billing.rate_limit_storage must be shared (redis://…)"
            )
        return self

    @model_validator(mode="after")
    def _only_a_cluster_has_nodes(self) -> Settings:
        if self.server.host == NODE and self.ray.address is None:
            raise ValueError("server.host: `node` is for a cluster, and there is no ray.address")
        return self

    @property
    def engine_models(self) -> list[ModelSettings]:
        """The chat models with engines of their own: all but adapters."""
        return [model for model in self.models if model.adapter is None]

    @property
    def engine_groups(self) -> list[EngineGroup]:
        """The same by application: those that take turns are in one."""
        return groups_of(self.engine_models, self.turns)

    def adapters_of(self, model_id: str) -> list[ModelSettings]:
        """The entries that the engines of this model serve beside it."""
        return [model for model in self.models if model.adapter is not None and model.adapter.of == model_id]

    def anchored(self, folder: Path) -> Settings:
        """The same settings with every relative path under `folder`, for processes that run elsewhere.

        A checkpoint or a tokenizer is such a path where it begins with a dot; else it may be a name on the hub.
        """
        billing = self.billing
        scheme, _, path = billing.database_url.partition(":///")
        url = f"sqlite:///{folder / path}" if scheme == "sqlite" else billing.database_url
        spool = folder / billing.spool_path
        hook = list(billing.collection_hook)
        if hook and "/" in hook[0]:
            # A bare name is looked up on PATH.
            hook[0] = str(folder / hook[0])
        archive = billing.archive.model_copy(update={"folder": folder / billing.archive.folder})
        anchored = {"database_url": url, "spool_path": spool, "collection_hook": hook, "archive": archive}
        return self.model_copy(
            update={
                "state_dir": folder / self.state_dir,
                "billing": billing.model_copy(update=anchored),
                "tracing": self.tracing.anchored(folder),
                "demo": self.demo.model_copy(update={"key_path": folder / self.demo.key_path}),
                "ops": _with_folder(self.ops, folder),
                "models": [
                    with_adapter(with_files(model, folder, "checkpoint"), folder) for model in self.models
                ],
                "retrieval_models": [
                    with_files(model, folder, "checkpoint") for model in self.retrieval_models
                ],
                "compression": self.compression.model_copy(
                    update={
                        "models": [
                            with_files(model, folder, "checkpoint", "tokenizer", "calibration")
                            for model in self.compression.models
                        ]
                    }
                ),
            }
        )


def load_anchored(path: Path) -> Settings:
    """Settings of a file, with relative paths under `anchor_of(path)`, wherever the command was called."""
    require_own(path)
    return load_settings(path).anchored(anchor_of(path))


class _Loader(yaml.SafeLoader):
    """PyYAML's safe one as it was at first: a library of vLLM's, where it is imported too, takes dates out of it."""

    yaml_constructors: ClassVar[dict[str | None, Any]] = dict(yaml.SafeLoader.yaml_constructors)


def load_settings(path: Path) -> Settings:
    """Read and check a configuration file. Raises `ConfigError` with one line per problem."""
    text = text_of(path)
    try:
        document = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # An invalid date or number raises ValueError, and endless nesting RecursionError.
        raise ConfigError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: must be a mapping")
    try:
        return Settings.model_validate(document)
    except ValidationError as error:
        problems = [_problem(issue, document) for issue in error.errors()]
        raise ConfigError("; ".join(f"{path}: {problem}" for problem in problems)) from error


def _with_folder(ops: OpsSettings, folder: Path) -> OpsSettings:
    file = ops.admin_key_file
    return ops if file is None else ops.model_copy(update={"admin_key_file": folder / file})


def _problem(issue: Any, document: Mapping[str, Any]) -> str:
    where = (
        " ".join(".".join(str(part) for part in place_in_file(issue["loc"], document)).split()) or "the file"
    )
    if issue["type"] == "extra_forbidden":
        # Of a chat model: those of other kinds have been sorted out.
        is_engine = issue["loc"][0] == "models" and issue["loc"][2:-1] == ("engine",)
        also = "; arguments of vLLM's stand in engine.args" if is_engine else ""
        return f"{where}: unknown key{also}"
    return f"{where}: {issue['msg'].removeprefix('Value error, ')}"


def unpinned_revisions(settings: Settings) -> list[str]:
    """One line for each repository that is taken as it is on the day, with the key that would pin it."""
    wanted: list[tuple[str, str | None, str | None]] = [
        (f"models.{model.id}.revision", model.checkpoint, model.revision) for model in settings.engine_models
    ]
    wanted += [
        (f"models.{model.id}.adapter.revision", model.adapter.source, model.adapter.revision)
        for model in settings.models
        if model.adapter is not None
    ]
    wanted += [
        (f"models.{other.id}.revision", other.checkpoint, other.revision)
        for other in settings.retrieval_models
    ]
    for model in settings.compression.models:
        key = f"compression.models.{model.id}"
        wanted.append((f"{key}.revision", model.checkpoint, model.revision))
        wanted.append((f"{key}.tokenizer_revision", model.tokenizer, model.tokenizer_revision))
    return [
        f"revision not pinned: {repository} is taken as the hub has it; name a commit in {key}"
        for key, repository, revision in wanted
        if repository and is_on_the_hub(repository) and not COMMIT.fullmatch(revision or "")
    ]


def is_on_the_hub(reference: str) -> bool:
    """Neither what comes with pith nor what is on this machine."""
    is_a_path = reference.startswith((".", "/", "~")) or Path(reference).exists()
    return not reference.startswith("embedded:") and not is_a_path
