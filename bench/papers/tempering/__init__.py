"""Tempering by subsampling: parallel tempering and tempered transitions."""
