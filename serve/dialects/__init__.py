"""The dialects that clients speak beside the contract: each translates at the edge, and the work behind is the same."""
