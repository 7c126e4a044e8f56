"""The full pass: a reduction over all row blocks with Dask."""
