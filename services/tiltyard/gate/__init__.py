"""The entry gate in front of the registry: what a domain must show before its tasks are sampled.

`check` has the checks of one domain, `registry` runs them over many and keeps the results by content, `cases` judges
files of cases. Verdicts come from the real verifier handler, and what must run does so in the real sandbox.
"""
