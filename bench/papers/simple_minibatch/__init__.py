"""Chen et al. 2016: a simple minibatch acceptance test."""
