"""Compression in processes of its own, where it can be ended: work that was given up is killed, whatever it is at."""
