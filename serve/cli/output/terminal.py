"""Text of others on a terminal: it must not obey what that says."""


def printable(source: str) -> str:
    """The same length, without the control characters that a terminal would obey."""
    spaced = source.replace("\r", " ")
    return "".join(char if char in "\n\t" or char.isprintable() else "\N{MIDDLE DOT}" for char in spaced)
