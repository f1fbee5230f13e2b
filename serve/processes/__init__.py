"""What the processes of one server share on one machine: the port, the rate-limit counters, a private folder."""
