"""Salience: the nature of each unit, whatever the query: noise, an error, one of many alike, a repetition."""

from compression.salience.needs import is_record, worths
from compression.salience.salience import Salience, read_salience

__all__ = ["Salience", "is_record", "read_salience", "worths"]
