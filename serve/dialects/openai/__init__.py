"""OpenAI's interface, under `/openai/v1`: what its clients send and expect, at their defaults."""
