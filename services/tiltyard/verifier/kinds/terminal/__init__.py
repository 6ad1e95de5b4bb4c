"""Kind `terminal`: the state that a session in a shell left, judged by probes from outside."""
