"""Anthropic's interface, under `/anthropic`: what its SDKs and Claude Code send and expect."""
