"""OpenAIEmbeddings of LangChain, sending texts: by default it sends token numbers of OpenAI's own vocabulary."""

import json
import os

from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import OpenAIEmbeddings

TEXTS = ["The river is long.", "Invoices are due in March.", "The cat sleeps."]
embeddings = OpenAIEmbeddings(model=os.environ["PITH_EMBEDDING_MODEL"], check_embedding_ctx_length=False)
store = InMemoryVectorStore.from_texts(TEXTS, embeddings)
print(
    json.dumps(
        {
            "size": len(embeddings.embed_query(TEXTS[0])),
            "found": store.similarity_search("When must the bill be paid?", k=1)[0].page_content,
            "exact": store.similarity_search(TEXTS[2], k=1)[0].page_content,
        }
    )
)
