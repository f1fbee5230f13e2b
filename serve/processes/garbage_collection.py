"""Keeps the cyclic garbage collector from scanning what stays for good: up to a million objects of modules."""

import gc


def freeze_heap() -> None:
    """To be called when all is loaded and no request has come: full collections then look at requests only."""
    gc.collect()
    gc.freeze()
