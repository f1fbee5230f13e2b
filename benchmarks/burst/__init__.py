"""So many requests at one moment: what becomes of each, and whether the server still answers others meanwhile."""
