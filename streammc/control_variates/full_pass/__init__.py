"""The full pass over the rows: compiled sums, scores, and their combination."""
