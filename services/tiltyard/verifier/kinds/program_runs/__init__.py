"""Kind `program_runs`: a program in one of several languages, judged by what it prints for given inputs."""
