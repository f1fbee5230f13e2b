"""Originals of compressed texts, kept if a request asks for it: encrypted, bounded, read in slices."""
