"""The `pith` command: each verb in the module of its name, and what they share."""
