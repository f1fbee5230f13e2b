"""Salience: the nature of each unit, whatever the query: noise, an error, one of many alike, a repetition."""

from compression.salience.causes import FAULT, with_causes
from compression.salience.findings import with_findings
from compression.salience.histories import rank_history
from compression.salience.named_code import with_named
from compression.salience.needs import is_record, worths
from compression.salience.replies import with_replies
from compression.salience.salience import Salience, read_salience

__all__ = [
    "FAULT",
    "Salience",
    "is_record",
    "rank_history",
    "read_salience",
    "with_causes",
    "with_findings",
    "with_named",
    "with_replies",
    "worths",
]
