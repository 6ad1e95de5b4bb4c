"""Kind `reward_file`: a verifier program of the task's, run on the workspace, says the score in a file."""
