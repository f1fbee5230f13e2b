"""What a server must not lose, and where its configuration keeps each part."""

from dataclasses import dataclass
from pathlib import Path

from billing.batches.kept_id import DEPLOYMENT
from serve.config.settings import Settings
from serve.money.ledger_setup import sqlite_file
from serve.money.pepper import PEPPER

LEDGER, SPOOL = "ledger.db", "spool.db"


@dataclass(frozen=True, slots=True)
class VitalFiles:
    """Each part by its name in a backup. `databases` are files of SQLite, in the order in which they are copied."""

    databases: dict[str, Path]
    secrets: dict[str, Path]
    # Contents of the files of batches.
    folder: Path
    ledger_is_elsewhere: bool


def vital_files_of(settings: Settings) -> VitalFiles:
    """The parts of a server with these settings, whether or not they exist."""
    ledger = sqlite_file(settings.billing.database_url)
    # The spool first: an event that moves to the ledger meanwhile is then in both, and is charged once. The other way
    # round it would be in neither.
    databases = {SPOOL: settings.billing.spool_path}
    if ledger is not None:
        databases[LEDGER] = ledger
    return VitalFiles(
        databases=databases,
        secrets={
            PEPPER: settings.state_dir / PEPPER,
            "admin-key": settings.ops.admin_key_file or settings.state_dir / "admin-key",
            "demo-key": settings.demo.key_path,
            DEPLOYMENT: settings.state_dir / DEPLOYMENT,
        },
        folder=settings.state_dir / "files",
        ledger_is_elsewhere=ledger is None,
    )
