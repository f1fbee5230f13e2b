"""What workspaces are asked to pay, and how it is handed to a payment system."""
