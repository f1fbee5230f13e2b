"""Histograms: their bounds, and how one is told of many values at once."""
