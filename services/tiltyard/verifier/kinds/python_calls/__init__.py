"""Kind `python_calls`: a Python function, judged by what given calls return."""
