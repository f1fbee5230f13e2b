"""What can go wrong with a backup, named for what happened."""

from serve.config.errors import ConfigError


class BackupRefused(ConfigError):
    """Something is in the way, or missing; nothing was overwritten."""


class BackupDamaged(ConfigError):
    """The folder is no backup, or not as it was written."""
