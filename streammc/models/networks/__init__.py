"""Feed-forward networks."""
