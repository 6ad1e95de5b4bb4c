"""Kind `javascript_calls`: a JavaScript function, judged by what given calls return."""
