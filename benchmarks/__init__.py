"""Load and quality measurements of a running server, over HTTP only: nothing here imports the rest of pith."""
