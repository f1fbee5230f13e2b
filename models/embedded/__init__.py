"""Four tiny chat models that come with pith, so that the whole service runs without a download or a GPU.

They exercise the service; their output is meaningless. `benchmarks/training/chat_models` rebuilds them.
"""

from models.embedded.install import DamagedArtefact, ensure_checkpoints
from models.embedded.roster import EMBEDDED_MODELS, EmbeddedModel

__all__ = ["EMBEDDED_MODELS", "DamagedArtefact", "EmbeddedModel", "ensure_checkpoints"]
