"""Uses docs/recipes/llamaindex_postprocessor.py on the released llama-index-core; prints what it got as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from llama_index.core.schema import ImageNode, NodeWithScore, TextNode
from llamaindex_postprocessor import PithPostprocessor
from pydantic import SecretStr

QUERY, TEXTS = json.load(sys.stdin)
NODES = [
    NodeWithScore(
        node=TextNode(id_=f"n{number}", text=text, metadata={"page": number}), score=1 - number / 10
    )
    for number, text in enumerate(TEXTS)
]
IMAGE = NodeWithScore(node=ImageNode(id_="image", image="aGk="), score=0.1)
URL, KEY = os.environ["PITH_URL"], SecretStr(os.environ["PITH_KEY"])


def failure(postprocessor: PithPostprocessor, **query: str) -> str:
    try:
        postprocessor.postprocess_nodes(NODES, **query)
    except (RuntimeError, ValueError) as error:
        return str(error)
    raise SystemExit("it did not fail")


def fields(nodes: list[NodeWithScore]) -> list[dict[str, object]]:
    return [
        {
            "id": each.node.node_id,
            "text": each.node.get_content(),
            "score": each.score,
            "metadata": each.metadata,
        }
        for each in nodes
    ]


pith = PithPostprocessor(url=URL, api_key=KEY, target_ratio=0.5)
print(
    json.dumps(
        {
            "found": fields(pith.postprocess_nodes([*NODES, IMAGE], query_str=QUERY)),
            "async": fields(asyncio.run(pith.apostprocess_nodes([*NODES, IMAGE], query_str=QUERY))),
            "untouched": [each.node.get_content() for each in NODES] == TEXTS,
            "empty": pith.postprocess_nodes([], query_str=QUERY),
            "shown": repr(pith) + json.dumps(pith.to_dict(), default=str),
            "no query": failure(pith),
            "both": failure(
                PithPostprocessor(url=URL, api_key=KEY, target_ratio=0.5, keep=0.9), query_str=QUERY
            ),
            "wrong key": failure(
                PithPostprocessor(url=URL, api_key=SecretStr("pith_wrong")), query_str=QUERY
            ),
            "nowhere": failure(PithPostprocessor(url="http://127.0.0.1:1", api_key=KEY), query_str=QUERY),
        }
    )
)
