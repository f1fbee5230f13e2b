"""Quality of the embedding and rerank models that come with pith at finding passages, beside BM25."""
