"""The ledger's numbers as metrics."""

from collections.abc import Mapping, Sequence

from prometheus_client.core import GaugeMetricFamily, Metric

from billing.books.at_a_glance import Glance
from billing.books.usage_report import UsageSum, total

NANO_PER_USD = 10**9
OTHER = "other"


def glance_families(found: Glance) -> Sequence[Metric]:
    batches = GaugeMetricFamily("pith_batches", "Unfinished batches, by status.", labels=["status"])
    for status, number in found.batches.items():
        batches.add_metric([status], number)
    lines = GaugeMetricFamily("pith_batch_lines", "Lines of unfinished batches, by state.", labels=["state"])
    for state, number in found.lines.items():
        lines.add_metric([state], number)
    spent = GaugeMetricFamily(
        "pith_workspaces_spent", "Workspaces that spent at least so much of a limit.", labels=["percent"]
    )
    for percent, number in found.spent.items():
        spent.add_metric([str(percent)], number)
    limited = GaugeMetricFamily("pith_workspaces_limited", "Workspaces with a limit.", found.limited)
    return [batches, lines, limited, spent]


def tenant_families(named: Mapping[str, UsageSum], others: UsageSum) -> Sequence[Metric]:
    """A customer that is called `other` is shown with the others."""
    named = dict(named)
    if OTHER in named:
        others = total([named.pop(OTHER), others])
    requests = GaugeMetricFamily(
        "pith_tenant_month_requests", "Requests of this month, by workspace.", labels=["workspace"]
    )
    tokens = GaugeMetricFamily(
        "pith_tenant_month_tokens", "Their tokens, by kind.", labels=["workspace", "kind"]
    )
    cost = GaugeMetricFamily("pith_tenant_month_usd", "US dollars charged for them.", labels=["workspace"])
    for name, line in {**named, OTHER: others}.items():
        requests.add_metric([name], line.requests)
        tokens.add_metric([name, "prompt"], line.prompt_tokens)
        tokens.add_metric([name, "completion"], line.completion_tokens)
        cost.add_metric([name], line.cost_nano_usd / NANO_PER_USD)
    return [requests, tokens, cost]
