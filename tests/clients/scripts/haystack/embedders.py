"""Haystack's OpenAI embedders beneath a retriever."""

import json
import os

from haystack import Document
from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
from haystack.components.retrievers.in_memory import InMemoryEmbeddingRetriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

given = {"model": os.environ["PITH_EMBEDDING_MODEL"], "api_base_url": os.environ["OPENAI_BASE_URL"]}
texts = ["The river is long.", "Invoices are due in March.", "The cat sleeps."]
embedded = OpenAIDocumentEmbedder(**given, progress_bar=False).run([Document(content=text) for text in texts])
query = OpenAITextEmbedder(**given).run("The cat sleeps.")
store = InMemoryDocumentStore(embedding_similarity_function="cosine")
store.write_documents(embedded["documents"])
found = InMemoryEmbeddingRetriever(store, top_k=1).run(query["embedding"])["documents"]
print(json.dumps({"size": len(query["embedding"]), "found": [document.content for document in found]}))
