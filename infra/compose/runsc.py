"""Put gVisor's runsc into the image: the one in infra/compose/local, else a release: `runsc.py URL TARGET`.

Whether it works can't be tried in a build; the service tests its behaviour when it starts (`tiltyard sandbox doctor`).
"""

import hashlib
import platform
import shutil
import sys
import urllib.request
from pathlib import Path

LOCAL = Path("/local/runsc")


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=180) as response:
        body: bytes = response.read()
    return body


def main(url: str, target: Path) -> None:
    if LOCAL.is_file():
        shutil.copyfile(LOCAL, target)
    else:
        program = f"{url}/{platform.machine()}/runsc"
        body, said = fetched(program), fetched(f"{program}.sha512").decode().split()[0]
        if hashlib.sha512(body).hexdigest() != said:
            sys.exit(f"{program}: its checksum is wrong; try again")
        target.write_bytes(body)
    target.chmod(0o755)


main(sys.argv[1], Path(sys.argv[2]))
