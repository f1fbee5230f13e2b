"""What every kind of text is cut with: lines, sentences, the bounds, and the builder that collects units."""
