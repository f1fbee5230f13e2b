"""OpenAI's Responses API: its body becomes a chat and options, and the reply is the engine's own in that form."""
