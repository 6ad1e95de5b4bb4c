"""Kind `repository`: a repository after the session, judged by hidden tests that must pass."""
