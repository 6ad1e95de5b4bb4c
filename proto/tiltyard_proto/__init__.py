"""The contract between Tiltyard's services: messages, outcomes, topology and the flow between stages.

Imports msgspec and the standard library, nothing of the services.
"""
