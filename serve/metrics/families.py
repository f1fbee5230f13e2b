"""Table of the metric families that pith counts: name, kind, help, labels and buckets.

`prometheus_client` is imported by what shows them alone: no process that counts needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

NANO_PER_USD = 10**9
# From a compression of a few words to an answer of thousands of tokens.
SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)
FIRST_TOKEN_SECONDS = (
    *(0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0),
)
# Between two tokens of a stream.
TOKEN_SECONDS = (
    *(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075),
    *(0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0),
)
RATIOS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.33, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)

NATS = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
SHARES = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 1.0)

# Of a gauge: the HTTP processes' values are added up, or they all count the same and the highest is shown.
Merging = Literal["livesum", "livemax"]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. A counter's name is without the `_total` that is shown."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    merging: Merging = "livesum"


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(name, "counter", text, labels)


def _gauge(name: str, text: str, *labels: str, merging: Merging = "livesum") -> Family:
    return Family(name, "gauge", text, labels, merging=merging)


def _histogram(name: str, text: str, *labels: str, buckets: tuple[float, ...] = SECONDS) -> Family:
    return Family(name, "histogram", text, labels, buckets)


_ROWS = (
    # Every HTTP request, by route template.
    _counter(
        "pith_http_requests",
        "HTTP requests that ended; status none: the client left before the response began.",
        *("route", "method", "status"),
    ),
    _histogram(
        "pith_http_request_duration_seconds",
        "HTTP requests: from the first byte read to the last byte sent, of a stream too.",
        *("route", "method"),
    ),
    _gauge("pith_http_requests_in_flight", "HTTP requests that are being answered."),
    _gauge("pith_ingress_replicas", "HTTP processes that are running."),
    _gauge("pith_event_loop_tasks", "Tasks of the event loops that do upkeep, as of their last rounds."),
    _counter(
        "pith_rate_limit_refusals",
        "Requests refused with 429, by scope and kind of limit.",
        *("scope", "limit"),
    ),
    # Money, of every kind of model.
    _counter(
        "pith_metering",
        "Settlements by metering status; lost is in neither the ledger nor the spool.",
        *("model", "status"),
    ),
    _counter("pith_charged_usd", "US dollars charged, those in the spool included.", "model"),
    _counter("pith_holds_refused", "Requests whose worst-case cost could not be held.", "model", "reason"),
    # Chats.
    _counter("pith_chat_requests", "Chat requests by how they ended.", "model", "outcome"),
    _counter("pith_chat_prompt_tokens", "Prompt tokens of settled requests.", "model"),
    _counter("pith_chat_completion_tokens", "Completion tokens of settled requests.", "model"),
    _counter("pith_chat_cached_tokens", "Prompt tokens found in the engine's prefix cache.", "model"),
    _counter(
        "pith_chat_bound_exceeded",
        "Requests that failed since the engine counted more tokens than were held for it.",
        "model",
    ),
    _gauge("pith_chat_requests_in_flight", "Chat requests that are being worked on.", "model"),
    _histogram(
        "pith_chat_time_to_first_token_seconds",
        "Streamed requests: from admission to the first event.",
        "model",
        buckets=FIRST_TOKEN_SECONDS,
    ),
    _histogram(
        "pith_chat_inter_token_seconds",
        "Streamed requests: from one token to the next, as they are sent.",
        "model",
        buckets=TOKEN_SECONDS,
    ),
    _histogram(
        "pith_chat_request_duration_seconds", "Completed requests: from admission to settlement.", "model"
    ),
    _gauge("pith_chat_requests_waiting", "Chat requests that wait for a replica.", "model"),
    _histogram("pith_chat_queue_seconds", "Chat requests that had to wait for a replica: how long.", "model"),
    # Compressions.
    _counter("pith_compress_requests", "Compressions by how they ended.", "model", "outcome"),
    _counter("pith_compress_original_tokens", "Tokens before compression.", "model"),
    _counter("pith_compress_output_tokens", "Tokens after compression.", "model"),
    _counter("pith_compress_risk_flags", "Compressions whose receipt has this flag.", "model", "code"),
    _histogram("pith_compress_ratio", "Output tokens divided by original tokens.", "model", buckets=RATIOS),
    _histogram(
        "pith_compress_request_duration_seconds",
        "Completed compressions: from the hold to the settlement.",
        "model",
    ),
    _gauge("pith_compress_jobs_waiting", "Compressions that wait for a process.", "model"),
    _gauge("pith_compress_jobs_running", "Compressions that processes work on.", "model"),
    _counter(
        "pith_compress_workers_replaced",
        "Worker processes that were replaced, by the reason.",
        *("model", "reason"),
    ),
    _counter("pith_compress_deadlines_passed", "Compressions that were not done in time.", "model"),
    # Compression inside chat, by chat model.
    _counter(
        "pith_prompt_compression_requests",
        "Settled chats for which compression was asked.",
        *("model", "status"),
    ),
    _counter(
        "pith_prompt_compression_blocks", "Blocks of prompts, by what became of them.", "model", "outcome"
    ),
    _counter(
        "pith_prompt_compression_original_tokens",
        "Tokens of these chats' prompts before compression.",
        "model",
    ),
    _counter(
        "pith_prompt_compression_sent_tokens",
        "Tokens of these chats' prompts as the engine counted them.",
        "model",
    ),
    _counter("pith_prompt_compression_tokens_saved", "Prompt tokens that were not sent.", "model"),
    _counter(
        "pith_prompt_compression_saved_usd",
        "US dollars that these chats would have cost more, before what compression cost.",
        "model",
    ),
    _counter(
        "pith_prompt_compression_cost_usd",
        "US dollars charged for compressing these chats' prompts.",
        "model",
    ),
    _histogram(
        "pith_prompt_compression_seconds",
        "Prompts whose blocks were looked at: from admission to the compressed prompt.",
        "model",
    ),
    # Of these chats, a sample is scored again after the whole prompt.
    _counter(
        "pith_preservation_checks",
        "Compressed chats sampled to be scored again, by what became of it.",
        *("model", "outcome"),
    ),
    _histogram(
        "pith_preservation_nats_per_token",
        "Checked chats: how much likelier their reply is after what was sent than after the whole prompt; at least 0.",
        "model",
        buckets=NATS,
    ),
    _histogram(
        "pith_preservation_agreement",
        "Checked chats: share of the reply's places with the same likeliest token after both prompts.",
        "model",
        buckets=SHARES,
    ),
    _counter("pith_preservation_engine_seconds", "Time of the engine that checks took.", "model"),
    # Embeddings, reranking, scores.
    _counter(
        "pith_retrieval_requests",
        "Embedding, rerank and score requests by how they ended.",
        *("model", "outcome"),
    ),
    _histogram(
        "pith_retrieval_request_duration_seconds",
        "Completed requests: from the hold to the settlement.",
        "model",
    ),
    _counter("pith_retrieval_input_tokens", "Tokens that models read.", "model"),
    _counter("pith_retrieval_texts", "Texts that got a vector or a score.", "model"),
    # Originals, background work, what leaves the server.
    _counter(
        "pith_originals_kept",
        "Originals that requests asked to have kept, by what became of them.",
        "outcome",
    ),
    _counter("pith_originals_read", "Reads of retained originals, by outcome.", "outcome"),
    _counter("pith_originals_deleted", "Retained originals that were deleted, by reason.", "reason"),
    _gauge(
        "pith_background_failing_seconds",
        "For how long a background task has been failing, added up over the processes; 0: it works.",
        "task",
    ),
    _counter("pith_background_failures", "Rounds of background tasks that failed.", "task"),
    _counter(
        "pith_written_off_usd",
        "US dollars of usage written off: beyond its hold and its workspace's limits.",
    ),
    _counter(
        "pith_webhook_deliveries", "Tries to deliver an event to a webhook, by what they came to.", "result"
    ),
    # Each process counts the same rows.
    _gauge(
        "pith_webhook_deliveries_waiting",
        "Deliveries to webhooks that are not done, first and later tries.",
        merging="livemax",
    ),
    _counter("pith_trace_spans_exported", "Spans that the collector took."),
    _counter("pith_trace_spans_dropped", "Spans that were lost: the collector is slow or away."),
    _counter(
        "pith_log_lines_dropped",
        "Lines of the log that were not written, since what reads them is slow or gone.",
    ),
    # A chat model's replica counts in a file of its own (`serve.metrics.counts`).
    _gauge(
        "pith_replica_requests_waiting",
        "Requests that wait for places on the engine, until their project's turn.",
        *("model", "replica"),
    ),
    _gauge("pith_replica_requests_running", "Requests that the engine was given.", "model", "replica"),
    _histogram(
        "pith_replica_queue_seconds", "Requests: from the replica's door to their turn.", "model", "replica"
    ),
    _counter(
        "pith_engine_restarts",
        "Engines that died and were started again in their replica.",
        *("model", "replica"),
    ),
    # Of models that take turns on the same GPUs.
    _gauge(
        "pith_model_awake", "Whether the model has its turn: 1, or 0 while it sleeps.", "model", "replica"
    ),
    _gauge(
        "pith_model_turn_requests_waiting",
        "Requests that wait for their model's turn; the replica counts them as running.",
        *("model", "replica"),
    ),
    _histogram(
        "pith_model_swap_seconds",
        "Swaps: from the end of another model's turn until this one is awake.",
        *("model", "replica"),
    ),
    # Replicas as Ray has them.
    _gauge("pith_replicas_running", "Replicas that take requests.", "model"),
    _gauge("pith_replicas_wanted", "Replicas that run or are being started.", "model"),
    _gauge("pith_model_away", "1 for a model that cannot be started; the others serve.", "model", "reason"),
    # The spool and the ledger, read when asked.
    _gauge("pith_spool_waiting_events", "Usage events in the spool that wait for the ledger."),
    _gauge("pith_spool_refused_events", "Usage events that the ledger refused for good."),
    _gauge("pith_ledger_up", "Whether the ledger answered the ops port's last question."),
    _gauge("pith_log_leaves", "Leaves of the transparency log."),
    _gauge("pith_log_pending", "Events and adjustments that wait for it; at most 100,000 are counted."),
    _gauge("pith_log_oldest_pending_seconds", "Since the oldest of these began; 0 if none waits."),
    _gauge("pith_batches", "Unfinished batches, by status.", "status"),
    _gauge("pith_batch_lines", "Lines of unfinished batches, by state.", "state"),
    _gauge("pith_workspaces_limited", "Workspaces with a limit."),
    _gauge("pith_workspaces_spent", "Workspaces that spent at least so much of a limit.", "percent"),
    _gauge("pith_tenant_month_requests", "Requests of this month, by workspace.", "workspace"),
    _gauge("pith_tenant_month_tokens", "Their tokens, by kind.", "workspace", "kind"),
    _gauge("pith_tenant_month_usd", "US dollars charged for them.", "workspace"),
    # The machine, and the server's processes under the names that Prometheus' clients use.
    _gauge("pith_build_info", "Versions; always 1.", "version", "commit", "vllm", "ray", "torch"),
    _gauge("pith_state_dir_size_bytes", "Size of the file system of state_dir."),
    _gauge("pith_state_dir_free_bytes", "Free there, for the server's user."),
    _gauge("pith_state_dir_inodes", "Files that it can have."),
    _gauge("pith_state_dir_free_inodes", "Files that can be made."),
    _counter("process_cpu_seconds", "Processor time, of user and system.", "process", "model", "replica"),
    _gauge(
        "process_resident_memory_bytes",
        "Memory in use; pages that processes share count in each.",
        *("process", "model", "replica"),
    ),
    _gauge("process_open_fds", "Open file descriptors.", "process", "model", "replica"),
    _gauge("process_max_fds", "File descriptors that it may open.", "process", "model", "replica"),
    _gauge(
        "process_start_time_seconds",
        "When it began, in seconds since 1970.",
        *("process", "model", "replica"),
    ),
)
FAMILIES = {row.name: row for row in _ROWS}


def collected_gauge(name: str, value: float | None = None) -> GaugeMetricFamily:
    """A gauge of the table for a collector that reads its values when it is asked."""
    from prometheus_client.core import GaugeMetricFamily

    row = FAMILIES[name]
    return GaugeMetricFamily(name, row.text, value, labels=row.labels if value is None else None)


def collected_counter(name: str) -> CounterMetricFamily:
    """The same of a counter."""
    from prometheus_client.core import CounterMetricFamily

    return CounterMetricFamily(name, FAMILIES[name].text, labels=FAMILIES[name].labels)
