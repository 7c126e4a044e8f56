"""From a data set and a model to a posterior on disk."""
