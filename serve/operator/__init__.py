"""The operator at work, for commands and the admin API; and views: each object that one handles, described once."""
