"""The source as compression works on it: units, documents, slices, and where they come from."""
