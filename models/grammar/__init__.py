"""Trials of callers' grammars, in a process that can be ended when one takes too long."""
