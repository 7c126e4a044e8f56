"""The posterior mode: starts, Newton's method, several modes, directions without information."""
