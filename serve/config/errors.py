"""What is wrong with a configuration or a command line. Apart from the settings, which take a while to import."""


class ConfigError(ValueError):
    """The configuration cannot be used; the message names the file, the key's path and the reason."""
