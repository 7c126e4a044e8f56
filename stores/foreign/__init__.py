"""zarr groups of other programs, opened as data sets where they are."""
