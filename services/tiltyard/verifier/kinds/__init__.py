"""Verifier kinds, a folder each: `data.py` what a task's verification holds, `kind.py` the two pure functions."""
