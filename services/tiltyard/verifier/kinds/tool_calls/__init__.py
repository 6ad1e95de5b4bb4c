"""Kind `tool_calls`: calls of tools, judged by their names and arguments."""
