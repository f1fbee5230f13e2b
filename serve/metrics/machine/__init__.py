"""What the ops port shows of the machine: the server's processes, the disk under its folder, and what is installed."""
