"""The verifier: turns finished rollouts into verdicts. It never runs untrusted code; what must run, a sandbox runs."""
