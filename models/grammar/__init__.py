"""What a caller's grammar costs: bounds on what is known to be dear, and a trial in a process that can be ended."""
