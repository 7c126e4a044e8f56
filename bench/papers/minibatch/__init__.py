"""Seita et al. 2017: an efficient minibatch acceptance test."""
