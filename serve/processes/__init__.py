"""What the processes of one server share on one machine: the port, the counts of limits, a private folder."""
