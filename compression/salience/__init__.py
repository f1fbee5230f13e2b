"""What each unit is, whatever the query: noise, an error, one of many alike, a repetition."""

from compression.salience.reading import read_salience
from compression.salience.salience import Salience

__all__ = ["Salience", "read_salience"]
