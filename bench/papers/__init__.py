"""The papers behind the samplers: their tables and figures, measured again."""
