"""vLLM's pooling runner as the replica of an embedding or rerank model."""
