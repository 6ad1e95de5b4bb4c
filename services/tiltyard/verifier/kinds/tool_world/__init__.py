"""Kind `tool_world`: calls of tools, judged by the state of the world that they lead to."""
