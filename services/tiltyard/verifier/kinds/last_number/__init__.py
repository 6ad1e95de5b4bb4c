"""Kind `last_number`: the last number of the answer counts."""
