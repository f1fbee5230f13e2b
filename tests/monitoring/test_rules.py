"""Each alert fires on what it is for, and stays quiet a little short of it: `promtool test rules`."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.monitoring.files import FOLDER, alerts, program

HTTP = 'pith_http_requests_total{route="/v1/chat/completions",method="POST",status="%s"}'


class Case(NamedTuple):
    """Series at steps of a minute, `a+bxn` as promtool writes them; the alert is asked for after `minutes`."""

    fires: dict[str, str]
    quiet: dict[str, str]
    minutes: int = 30


def counter(series: str, *, grows: str = "0x10 1x20", still: str = "5x30") -> Case:
    return Case({series: grows}, {series: still}, 12)


def gauge(series: str, high: float, low: float, minutes: int = 30) -> Case:
    return Case({series: f"{high}x{minutes}"}, {series: f"{low}x{minutes}"}, minutes)


def histogram(name: str, slow: str) -> Case:
    """Half of what is observed is quicker than `slow`; of the quiet one everything."""
    labels = f'{name}_bucket{{model="m",le="%s"}}'
    below, above = labels % slow, {labels % bound: "0+60x30" for bound in ("60", "+Inf")}
    return Case({below: "0+30x30", **above}, {below: "0+60x30", **above})


def errors(percent: float) -> dict[str, str]:
    return {HTTP % "200": f"0+{1000 - 10 * percent:g}x400", HTTP % "503": f"0+{10 * percent:g}x400"}


WAITING = 'vllm:num_requests_waiting{instance="%s",model="m",replica="0"}'
KV = 'vllm:kv_cache_usage_perc{instance="i",model="m",replica="0"}'
REPLICA = 'process_start_time_seconds{instance="i",process="replica",model="m",replica="0"}'
SERVER = 'process_start_time_seconds{instance="i",process="server",replica="0"}'
WANTED = 'pith_replicas_wanted{instance="i",model="m"}'
STARTED = 'process_start_time_seconds{process="ingress",replica="0"}'
LINES = 'pith_batch_lines{instance="i",state="%s"}'
RUNNING = 'pith_batches{instance="i",status="in_progress"}'
COMPRESS = 'pith_compress_requests_total{model="m",outcome="%s"}'
CASES = {
    "PithDown": gauge('up{job="pith"}', 0, 1),
    "PithNoIngress": gauge("pith_ingress_replicas", 0, 1),
    "PithErrorBudgetFastBurn": Case(errors(1.6), errors(1.3), 70),
    "PithErrorBudgetSlowBurn": Case(errors(0.7), errors(0.5), 390),
    "PithFirstTokenSlow": histogram("pith_chat_time_to_first_token_seconds", "2.5"),
    "PithTokensSlow": histogram("pith_chat_inter_token_seconds", "0.15"),
    "PithChatQueueLong": gauge('pith_chat_requests_waiting{model="m"}', 33, 32),
    # Another server's replica of that number says nothing of this one's.
    "PithEngineSaturated": Case(
        {KV: "0.97x30", WAITING % "i": "2x30"},
        {KV: "0.97x30", WAITING % "i": "0x30", WAITING % "other": "2x30"},
    ),
    "PithEngineRestarted": counter('pith_engine_restarts_total{model="m",replica="0"}'),
    "PithReplicasMissing": Case(
        {'pith_replicas_running{model="m"}': "1x30", 'pith_replicas_wanted{model="m"}': "2x30"},
        {'pith_replicas_running{model="m"}': "2x30", 'pith_replicas_wanted{model="m"}': "2x30"},
    ),
    "PithProcessRestarting": Case({STARTED: "1x5 2x5 3x5 4x5"}, {STARTED: "1x5 2x5 3x15"}, 20),
    "PithLedgerAway": gauge("pith_ledger_up", 0, 1),
    "PithMeteringDegraded": counter('pith_metering_total{model="m",status="degraded"}'),
    "PithUsageLost": counter('pith_metering_total{model="m",status="lost"}'),
    "PithSpoolGrowing": gauge("pith_spool_waiting_events", 101, 100),
    "PithSpoolRefused": gauge("pith_spool_refused_events", 1, 0),
    "PithUpkeepFailing": Case(
        {'pith_background_failing_seconds{task="leases"}': "130x30"},
        {'pith_background_failing_seconds{task="collecting"}': "130x30"},
    ),
    "PithCollectionsFailing": gauge('pith_background_failing_seconds{task="collecting"}', 601, 600),
    "PithCompressionFailing": Case(
        {COMPRESS % "failed": "0+2x30", COMPRESS % "completed": "0+98x30"},
        {COMPRESS % "failed": "0+1x30", COMPRESS % "completed": "0+199x30"},
    ),
    "PithChatCompressionFailing": Case(
        {'pith_prompt_compression_requests_total{model="m",status="failed"}': "0+1x30"},
        {'pith_prompt_compression_requests_total{model="m",status="skipped"}': "0+1x30"},
    ),
    "PithCompressorOverloaded": Case({COMPRESS % "overloaded": "0+1x30"}, {COMPRESS % "refused": "0+1x30"}),
    "PithCompressorWorkersDying": Case(
        {'pith_compress_workers_replaced_total{model="m",reason="died"}': "0x10 1x20"},
        {'pith_compress_workers_replaced_total{model="m",reason="cancelled"}': "0x10 1x20"},
        12,
    ),
    "PithWrittenOff": counter("pith_written_off_usd_total"),
    "PithBoundExceeded": counter('pith_chat_bound_exceeded_total{model="m"}'),
    "PithWorkspacesNearLimit": Case(
        {'pith_workspaces_spent{percent="80"}': "1x30"}, {'pith_workspaces_spent{percent="80"}': "0x30"}
    ),
    "PithDiskFilling": Case(
        {"pith_state_dir_free_bytes": "9x30", "pith_state_dir_size_bytes": "100x30"},
        {"pith_state_dir_free_bytes": "10x30", "pith_state_dir_size_bytes": "100x30"},
    ),
    "PithInodesLow": Case(
        {"pith_state_dir_free_inodes": "4x30", "pith_state_dir_inodes": "100x30"},
        {"pith_state_dir_free_inodes": "5x30", "pith_state_dir_inodes": "100x30"},
    ),
    "PithOpenFilesHigh": Case(
        {'process_open_fds{process="ingress"}': "81x30", 'process_max_fds{process="ingress"}': "100x30"},
        {'process_open_fds{process="ingress"}': "80x30", 'process_max_fds{process="ingress"}': "100x30"},
    ),
    "PithBatchesStuck": Case(
        {LINES % "waiting": "5x90", LINES % "completed": "3x90", LINES % "failed": "0x90", RUNNING: "1x90"},
        {LINES % "waiting": "5x90", LINES % "completed": "3+1x90", LINES % "failed": "0x90", RUNNING: "1x90"},
        85,
    ),
    "PithWebhooksWaiting": Case(
        {'pith_webhook_deliveries_waiting{instance="i"}': "51x60"},
        {'pith_webhook_deliveries_waiting{instance="i"}': "50x60"},
        50,
    ),
    "PithLogLinesDropped": counter("pith_log_lines_dropped_total"),
}


# Beside the one above, by alert.
FURTHER = [
    # A replica died. One that was idle in between was stopped on purpose, and a new server has new replicas.
    (
        "PithEngineRestarted",
        Case(
            {REPLICA: "1x10 2x20", SERVER: "1x30", WANTED: "1x30"},
            {REPLICA: "1x10 _x2 2x20", SERVER: "1x30", WANTED: "1x10 0x2 1x20"},
            15,
        ),
    ),
    (
        "PithEngineRestarted",
        Case(
            {REPLICA: "1x10 2x20", SERVER: "1x30"},
            {REPLICA: "1x10 2x20", SERVER: "1x10 2x20", WANTED: "1x30"},
            15,
        ),
    ),
    # Deadlines that passed.
    (
        "PithCompressionFailing",
        Case(
            {COMPRESS % "unavailable": "0+2x30", COMPRESS % "completed": "0+98x30"},
            {COMPRESS % "cancelled": "0+2x30", COMPRESS % "completed": "0+98x30"},
        ),
    ),
]


def test_every_alert_fires_on_what_it_is_for_and_not_short_of_it(tmp_path: Path) -> None:
    assert CASES.keys() == {alert["alert"] for alert in alerts()}
    tests = [
        {
            "name": f"{name} {'fires' if fires else 'is quiet'}",
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in given.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})',
                    "eval_time": f"{case.minutes}m",
                    "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                }
            ],
        }
        for name, case in [*CASES.items(), *FURTHER]
        for fires, given in ((True, case.fires), (False, case.quiet))
    ]
    path = tmp_path / "alerts.test.json"
    path.write_text(
        json.dumps({"rule_files": [str(FOLDER / "alerts.yaml")], "evaluation_interval": "1m", "tests": tests})
    )
    done = subprocess.run([program("promtool"), "test", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
