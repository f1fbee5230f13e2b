"""What usage and savings can be added up by, apart from the SQL that does it."""

from typing import Literal, get_args

Dimension = Literal["workspace", "project", "key", "model", "route", "day", "month"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
# A comparison is of whole conversations, which neither one key nor one day has.
COMPARED_BY: tuple[Dimension, ...] = ("workspace", "project", "model")
# The lines of a statement.
LINES: tuple[Dimension, ...] = ("project", "model")
