"""Parts that the families of samplers share: chains, tuning, step shape, ladders, option checks."""
