"""The suites whose contexts need more than a line to build: each module reads one kind of file."""
