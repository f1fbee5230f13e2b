"""A load generator of our own: what the load tools in the field do not report is CPU by process and raw samples."""
