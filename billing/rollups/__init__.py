"""Sums of usage events, which are as exact as the events at every moment, and how far the events were proven."""
