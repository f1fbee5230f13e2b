"""What keeps a month from being archived, and what can be wrong with an archive. Nothing was deleted then."""

from billing.errors import BillingError


class ArchiveRefused(BillingError):
    """The month is not one that can be archived now; the message says why."""


class ArchiveDamaged(BillingError):
    """A file is missing, cannot be read or written, or is not what the ledger had."""
