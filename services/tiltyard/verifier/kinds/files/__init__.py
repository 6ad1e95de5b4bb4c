"""Kind `files`: the workspace's files after the session, compared with what they must be."""
