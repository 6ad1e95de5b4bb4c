"""Built-in task domains: a TOML definition each, generators, and how actions are read.

`load(name)` and `load_all()` give domains, `domain.tasks(split, count, seed)` their tasks, `demos` worked answers,
`interfaces.parse_action` what an action asks a sandbox to run. Knows no service.
"""

from .definition import Definition
from .demos import demos
from .domain import Domain
from .drafts import Draft, Request, bucket
from .registry import load, load_all

__all__ = ["Definition", "Domain", "Draft", "Request", "bucket", "demos", "load", "load_all"]
