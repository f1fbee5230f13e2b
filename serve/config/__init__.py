"""The configuration file, typed once."""
