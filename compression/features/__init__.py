"""Features of a unit for the trained scorer: matches of words, their parts and their meaning, and what is around it."""
