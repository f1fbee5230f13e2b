"""What stands around every route: paths of the dialects, turns, pages of other origins."""
