"""Kind `table_answer`: a value or rows found in data, judged by type and tolerance."""
