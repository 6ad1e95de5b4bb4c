"""`tiltyard domains new`: a package of its own with one domain, which passes the gate before anything is changed.

For kinds without an example here the package says which fields the kind's data has, and its check fails until they
are filled. Invariant: no file that exists is written over.
"""

from __future__ import annotations

import inspect
from argparse import Namespace
from pathlib import Path

from tiltyard.cli.errors import UserError
from tiltyard.verifier.kinds.registry import AnyKind, installed
from tiltyard_proto.keys import check_domain

from .examples import EXAMPLES, Example

DEFINITION = """\
# Every key: docs/domains.md. Try it: tiltyard domains check --file {file}
name = "{name}"
title = "{title}"
generator = "./generator.py:generate"
source = "generated"
user = "{user}"
held_out = [{held}]          # templates that only evaluation sees
extractive = {extractive}         # true where the answer stands in the prompt by design

[verifier]
kind = "{kind}"
{options}
[sampling]
max_new_tokens = {tokens}

[limits]
tokens = 1024

[curriculum]
train_tasks = 200
eval_tasks = 40
prior_pass = 0.2             # believed pass rate of the model as it is
"""
GENERATOR = '''\
"""Problems of {name}: the same seed gives the same ones."""

import random
from collections.abc import Iterator

from tiltyard.domains import Draft, Request

TEMPLATES = {templates}


def generate(request: Request) -> Iterator[Draft]:
    """Problems, endlessly; only of templates that the split draws from."""
    rng = random.Random(f"{name}/{{request.split}}/{{request.seed}}")
    wanted = [template for template in TEMPLATES if request.wants(template)]
    while wanted:
        template = rng.choice(wanted)
{body}
'''
PROJECT = """\
[project]
name = "{dist}"
version = "0.1.0"
dependencies = ["tiltyard"]

[project.entry-points."tiltyard.domains"]
"{name}" = "{package}:FOLDER"

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["{package}"]
"""
INIT = '''\
"""The domain {name}: a definition and its generator."""

from pathlib import Path

FOLDER = Path(__file__).parent
'''


def new_main(arguments: Namespace) -> int:
    """Write the package and say what to do next."""
    name = check_domain(arguments.name)
    kinds = installed()
    if arguments.kind not in kinds:
        raise UserError(f"--kind {arguments.kind}: there is no such kind; there are {', '.join(kinds)}")
    package = name.replace(".", "_")
    folder: Path = arguments.into or Path(package)
    definition = folder / package / f"{name}.toml"
    example = EXAMPLES.get(arguments.kind) or unknown(kinds[arguments.kind])
    held = ", ".join(f'"{template}"' for template in example.held_out)
    filled = {
        "name": name,
        "title": name.rpartition(".")[2].replace("_", " ").capitalize(),
        "file": str(definition),
        "kind": arguments.kind,
        "package": package,
        "dist": package.replace("_", "-"),
        "held": held,
        "user": example.user,
        "options": f"{example.options}\n" if example.options else "",
        "extractive": str(example.extractive).lower(),
        "tokens": example.tokens,
        "templates": repr(example.templates),
        "body": example.body,
    }
    files = {
        definition: DEFINITION,
        folder / package / "generator.py": GENERATOR,
        folder / package / "__init__.py": INIT,
        folder / "pyproject.toml": PROJECT,
    }
    for path, text in files.items():
        if path.exists():
            raise UserError(f"{path} is there already; nothing was written over (name another folder with --into)")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.format_map(filled))
    print(*(f"wrote {path}" for path in files), sep="\n")
    print(f"check it:    tiltyard domains check --file {definition}")
    print(f"install it:  pip install -e {folder}, then `tiltyard domains sample {name}` and [run.train] know it")
    return 0


def unknown(kind: AnyKind) -> Example:
    """For a kind without an example: a draft with the names of what its data needs."""
    said = inspect.getdoc(type(kind)) or ""
    fields = "\n".join(f"        #   {name}: {hint}" for name, hint in kind.data.__annotations__.items())
    body = f"""\
        # {kind.name}: {said.splitlines()[0] if said else ""} verification data, see {kind.data.__module__}:
{fields}
        yield Draft(
            template=template,
            fields={{"question": "a question that differs each time"}},
            data={{}},
            reference="an answer that gets full credit",
        )"""
    return Example(templates=("first", "held"), held_out=("held",), body=body)
