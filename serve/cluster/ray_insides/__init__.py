"""Private parts of Ray that pith relies on, a module for each; and loopback by their means."""
