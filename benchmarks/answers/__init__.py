"""Measures answers under compression: the same questions with the whole context, with less of it, and with none."""
