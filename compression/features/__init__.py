"""What the trained scorer sees of a unit: matches of words, their parts and their meaning, and what is around it."""
