"""Vectors of texts and how relevant texts are to a query, by the table and the networks that come with pith."""
