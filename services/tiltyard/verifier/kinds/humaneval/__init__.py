"""Kind `humaneval`: a Python function, judged by a check program that calls it."""
