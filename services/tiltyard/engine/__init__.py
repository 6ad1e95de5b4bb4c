"""The embedded engine: samples from a small model on the CPU behind SGLang's native HTTP API."""
