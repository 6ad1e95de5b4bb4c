"""Numbers with bounds, for the types of settings: a value outside is refused with its key and what was expected.

Invariant: no bound lets NaN or infinity through. The bounds hold where settings are read (`settings.section`), not
where a struct is constructed in code. Left out: conditions between two keys, which stand in `__post_init__`.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

LARGE = 2**53

Whole = Annotated[int, msgspec.Meta(ge=0, le=LARGE)]
"""0 or more."""
Positive = Annotated[int, msgspec.Meta(ge=1, le=LARGE)]
"""1 or more."""
Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""Finite, 0 or more."""
Above0 = Annotated[float, msgspec.Meta(gt=0, le=1e12)]
"""Finite, more than 0."""
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
