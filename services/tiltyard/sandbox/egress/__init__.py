"""The way out of a sandbox that may reach some hosts: a network of its own, and a proxy as the only thing in it."""
