"""The operator at work, for commands and the admin API; views: each object that one handles, said once; and backups."""
