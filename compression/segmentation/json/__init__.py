"""JSON as units: members and elements that can be dropped while what is left still parses."""
