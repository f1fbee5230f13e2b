"""The growth of a prompt by its chat template."""
