"""vLLM behind the engine protocols: the only modules that import it."""
