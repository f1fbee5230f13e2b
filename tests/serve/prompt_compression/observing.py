"""An observed prompt, for tests that count nothing."""

from prometheus_client import CollectorRegistry

from serve.metrics.charged_requests import ObservedPrompt, PromptCompressionMetrics


def observed_prompt() -> ObservedPrompt:
    return PromptCompressionMetrics(CollectorRegistry(), ["chat"]).begin("chat")
