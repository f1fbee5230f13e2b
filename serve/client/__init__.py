"""The HTTP client of pith's own commands and tools: what they ask a running pith, and one sentence for any failure."""
