"""Preservation: the shift of answers under compression, measured on a sample of chats, and bounds that hold for it."""
