"""Install what parts of pyproject.toml name into the image's virtual environment: `install.py dependencies|EXTRA ...`.

Versions are the locked ones. Packages' own tests are removed: nothing here runs them, and they are a tenth of the size.
"""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

PYTHON = "/opt/tiltyard/bin/python"
HERE = Path(__file__).parent
LOCAL = ("/local", "/wheels")


def wanted(parts: list[str]) -> list[str]:
    """Requirements of the parts, without torch, which has a layer of its own."""
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    named = {"dependencies": project["dependencies"], **project["optional-dependencies"]}
    return [line for part in parts for line in named[part] if not line.startswith("torch")]


def main() -> None:
    links = [word for folder in LOCAL if Path(folder).is_dir() for word in ("--find-links", folder)]
    command = ["pip3", "--python", PYTHON, "install", "--quiet", "--prefer-binary", *links]
    command += ["--constraint", str(HERE / "constraints.txt"), *wanted(sys.argv[1:])]
    subprocess.run(command, check=True)
    for packages in Path("/opt/tiltyard/lib").glob("python3*/site-packages"):
        for tests in packages.glob("*/**/tests"):
            if not tests.is_relative_to(packages / "torch"):
                shutil.rmtree(tests, ignore_errors=True)


main()
