"""What the trained scorer sees of a unit: matches of words, of their parts and of their meaning, and the unit's surroundings."""
