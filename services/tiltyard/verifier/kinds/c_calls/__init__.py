"""Kind `c_calls`: a C function, judged by what given calls return."""
