"""Write the golden bytes: `PYTHONPATH=services:proto:tests python tests/contract/golden/make.py`.

Only for a new message type or a new field with a default. Bytes that changed otherwise are a break of the contract.
"""

from __future__ import annotations

from pathlib import Path

from support.examples import EXAMPLES

from tiltyard_proto import topology

if __name__ == "__main__":
    for name, message in EXAMPLES.items():
        (Path(__file__).parent / f"{name}.msgpack").write_bytes(topology.encode(message))
