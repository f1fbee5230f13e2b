"""How well the embedding and rerank models that come with pith find passages, compared with BM25."""
