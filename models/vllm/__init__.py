"""vLLM behind the engine protocols: no other modules import it."""
