"""Salience: the nature of each unit, whatever the query: noise, an error, one of many alike, a repetition."""

from compression.salience.findings import with_findings
from compression.salience.histories import rank_history
from compression.salience.needs import is_record, worths
from compression.salience.replies import with_replies
from compression.salience.salience import Salience, read_salience

__all__ = [
    "Salience",
    "is_record",
    "rank_history",
    "read_salience",
    "with_findings",
    "with_replies",
    "worths",
]
