"""The reduction of all row blocks with Dask."""
