"""Runs untrusted code in gVisor: warm pools, sessions across turns, grading jobs, and nothing left behind."""
