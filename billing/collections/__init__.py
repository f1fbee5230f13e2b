"""Collections: payments asked of workspaces, and their handing to a payment system."""
