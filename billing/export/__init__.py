"""Usage events and adjustments for other programs, row by row: as JSON lines, CSV or Parquet, of any number."""
