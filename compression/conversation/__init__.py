"""Chat messages as JSON: read, cut so that what is left is a conversation, and told apart message by message."""

from compression.conversation.layout import KeptMessage, KeptText, spans_by_message
from compression.conversation.messages import fault_in, is_conversation

__all__ = ["KeptMessage", "KeptText", "fault_in", "is_conversation", "spans_by_message"]
