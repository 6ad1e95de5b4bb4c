"""Generators of the built-in domains: functions from a `Request` to drafts, deterministic in its seed."""
