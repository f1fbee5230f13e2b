"""The chat models: what is served and at what price, what a request may ask of them, and their engines."""
