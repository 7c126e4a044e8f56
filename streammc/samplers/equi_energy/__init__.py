"""``mintee``: the equi-energy sampler whose levels evaluate subsets of the rows."""
