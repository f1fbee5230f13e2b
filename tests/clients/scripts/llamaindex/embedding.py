"""LlamaIndex: OpenAILikeEmbedding, alone and beneath an index."""

import json
import os

from llama_index.core import Document, VectorStoreIndex
from llama_index.embeddings.openai_like import OpenAILikeEmbedding

embedding = OpenAILikeEmbedding(
    model_name=os.environ["PITH_EMBEDDING_MODEL"],
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
)
texts = ["The river is long.", "Invoices are due in March.", "The cat sleeps."]
index = VectorStoreIndex.from_documents([Document(text=text) for text in texts], embed_model=embedding)
found = index.as_retriever(similarity_top_k=1).retrieve("The cat sleeps.")
print(
    json.dumps(
        {"size": len(embedding.get_text_embedding(texts[0])), "found": [node.get_content() for node in found]}
    )
)
