"""What the commands of `pith` share."""
