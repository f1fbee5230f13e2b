"""Fits the calibrations that come with pith: `python -m compression.training.calibration`."""
