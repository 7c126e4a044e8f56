"""``sgld`` and ``sghmc``: Langevin and Hamiltonian dynamics with gradients of a subsample."""
