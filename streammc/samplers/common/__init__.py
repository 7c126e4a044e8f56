"""Parts shared by the families of samplers: chains, tuning, step shape, ladders, options."""
