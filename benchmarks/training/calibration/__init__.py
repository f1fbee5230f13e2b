"""Fitting of the calibrations that come with pith: `python -m benchmarks.training.calibration`."""
