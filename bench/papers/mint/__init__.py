"""Li and Wong 2017: mini-batch tempered MCMC, MINT and MINTEE."""
