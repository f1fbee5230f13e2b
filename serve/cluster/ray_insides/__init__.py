"""What is used of Ray that it does not promise to keep, a module for each of its parts; and loopback by its means."""
