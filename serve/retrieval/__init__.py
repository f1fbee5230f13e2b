"""Embeddings, reranking and scores, from a request's body to the last byte of its reply."""
