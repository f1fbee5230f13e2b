"""Commands about the money of workspaces besides usage, and about its rows for other programs."""
