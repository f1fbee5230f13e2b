"""How probable it is that the evidence was kept: a model of what scores, kind of input and selection say together."""
