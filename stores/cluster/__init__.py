"""Work on a Dask cluster: its address, its workers, and what is done when they fail."""
