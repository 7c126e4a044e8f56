"""``pt``, ``spt``, ``tt`` and ``stt``: parallel tempering and tempered transitions."""
