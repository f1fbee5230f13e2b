"""The kinds of text that are cut in their own way: prose, code, logs, tables, diffs, test runs, directory trees."""
