"""An observed prompt, for tests that count nothing."""

from prometheus_client import CollectorRegistry

from serve.metrics.charged_requests import ObservedPrompt, PromptCompressionMetrics
from serve.metrics.families import Families


def observed_prompt() -> ObservedPrompt:
    return PromptCompressionMetrics(Families(CollectorRegistry()), ["chat"]).begin("chat")
