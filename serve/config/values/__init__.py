"""What values of a configuration mean that are written in a few letters: networks, origins of pages, machines."""
