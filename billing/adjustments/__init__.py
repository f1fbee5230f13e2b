"""Credits, adjustments and refunds: what changes the money owed besides usage, in rows that are never rewritten."""
