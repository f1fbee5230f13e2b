"""Webhooks: who is told of which events, the outbox of what there is to tell, and how it is delivered."""
