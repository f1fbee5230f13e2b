"""The way to a replica and its private port: the choice of one, the reply, and the protocol between both sides."""
