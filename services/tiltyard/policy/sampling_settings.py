"""How a row is sampled, and uniform numbers that depend on a seed alone. Loads no torch."""

import hashlib
from typing import NamedTuple


class Sampling(NamedTuple):
    """How one row is sampled; `top_k` < 1 means all tokens, a temperature below 1e-6 means greedy."""

    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature < 1e-6

    @property
    def truncates(self) -> bool:
        """Whether some tokens are excluded."""
        return not self.greedy and (self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0)


def seeded_uniform(seed: int, position: int) -> float:
    """A uniform number in [0, 1) that depends on nothing but its arguments."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 40) * 2.0**-24
