"""Mixed models: group effects of one grouping column, integrated out by quadrature."""
