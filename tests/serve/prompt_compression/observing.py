"""An observed prompt, for tests that count nothing."""

from serve.metrics.charged_requests import ObservedPrompt, PromptCompressionMetrics
from serve.metrics.counts import Counts, Families


def observed_prompt() -> ObservedPrompt:
    return PromptCompressionMetrics(Families(Counts()), ["chat"]).begin("chat")
