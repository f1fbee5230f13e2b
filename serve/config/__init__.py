"""What a configuration says, checked beyond its types."""
