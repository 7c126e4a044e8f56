"""Row access for samplers: mapped files, the compiled gather, row ids and row weights."""
