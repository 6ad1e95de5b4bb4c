"""Subcommands of `tiltyard` and their arguments. `--help` of each is enough to use it.

Left out: what the subcommands do; each lies in a module of its own that is imported when it is called, so that
`--help` stays quick.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiltyard.kit.settings import Source, read_source
from tiltyard_proto.topology import STAGES

from .dlq import add_parser as add_dlq
from .domains import add_parser as add_domains
from .errors import UserError
from .sandbox import add_parser as add_sandbox

SERVICES = ("sampler", "gateway", "sandbox", "verifier", "aggregator", "trainer", "engine")


def _config(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", required=required, help="TOML configuration")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="TABLE.KEY=VALUE",
        help="override one setting; TILTYARD_TABLE__KEY in the environment does the same",
    )


def _janitor(commands: Any) -> None:
    janitor = commands.add_parser("janitor", help="remove finished messages and orphaned blobs; `up` does it by itself")
    janitor.add_argument("--once", action="store_true", help="one round instead of for ever")
    _config(janitor)


def _publish(commands: Any) -> None:
    publish = commands.add_parser(
        "publish", help="publish tasks from a JSON-lines file, a domain's own tasks, or a run's"
    )
    publish.add_argument(
        "file", nargs="?", type=Path, metavar="FILE.jsonl", help="one task per line; '-' reads standard input"
    )
    publish.add_argument("--domain", metavar="NAME", help="publish generated tasks of this domain instead of a file")
    publish.add_argument(
        "--run", action="store_true", help="publish the tasks that the configured run names, as `up` does"
    )
    publish.add_argument("--split", choices=("train", "eval"), default="train")
    publish.add_argument("-n", type=int, default=100, metavar="COUNT", help="how many generated tasks (default 100)")
    publish.add_argument("--seed", type=int, default=0)
    _config(publish)


def _bus_commands(commands: Any) -> None:
    provision = commands.add_parser("provision", help="create streams, consumers and buckets on the bus")
    _config(provision)

    credentials = commands.add_parser(
        "credentials", help="make keys, certificates and the servers' security configuration; keeps what is there"
    )
    credentials.add_argument("directory", type=Path, metavar="DIR", help="where they lie; private to you")
    credentials.add_argument(
        "--host", action="append", default=[], metavar="NAME", help="a further name or address of the servers"
    )
    credentials.add_argument(
        "--mount", type=Path, metavar="PATH", help="where the servers will see DIR/server (default: where it is)"
    )
    credentials.add_argument(
        "--rotate",
        action="append",
        default=[],
        metavar="USER",
        help="make a new key and certificate for this user, or for 'all'; the servers take the old key as well",
    )
    credentials.add_argument(
        "--retire", action="append", default=[], metavar="USER", help="refuse the old keys of this user, or of 'all'"
    )


def _weights(commands: Any) -> None:
    top = commands.add_parser("weights", help="shares of domains at the stages where they compete; taken up live")
    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")
    ls = actions.add_parser("ls", help="the weights that are set; every other domain has 1")
    ls.add_argument("--json", action="store_true", help="machine-readable")
    put = actions.add_parser("set", help="give domains weights: twice the weight is twice the share while both wait")
    put.add_argument("weights", nargs="+", metavar="DOMAIN=WEIGHT")
    put.add_argument("--only", action="store_true", help="forget all other weights of the stage")
    unset = actions.add_parser("unset", help="give domains back the weight 1")
    unset.add_argument("domains", nargs="+", metavar="DOMAIN")
    shared = [stage.name for stage in STAGES if stage.shared]
    for action in actions.choices.values():
        action.add_argument(
            "--stage",
            action="append",
            default=[],
            choices=shared,
            metavar="STAGE",
            help=f"at this stage only, which may be said again; default: {' and '.join(shared)}",
        )
        _config(action)


def _quotas(commands: Any) -> None:
    top = commands.add_parser("quotas", help="how many sandboxes runs and domains may have; taken up live")
    actions = top.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("ls", help="the quotas that are set on the bus")
    put = actions.add_parser("set", help="put a file's quotas in place of those of the settings")
    put.add_argument("file", type=Path, metavar="FILE.toml", help="tables [tenants] and [domains]")
    actions.add_parser("clear", help="go back to the quotas of the settings")
    for action in actions.choices.values():
        _config(action)


def _size(commands: Any) -> None:
    size = commands.add_parser("size", help="how many of each service a rate of rollouts needs, from measured costs")
    size.add_argument("rate", type=float, metavar="ROLLOUTS_PER_SECOND")
    size.add_argument(
        "--domain", action="append", default=[], metavar="NAME[=SHARE]",
        help="a domain and its share of the rollouts, which may be said again; default: those of the run",
    )  # fmt: skip
    size.add_argument(
        "--costs", type=Path, metavar="FILE", help="costs that `make load` measured; default: shipped ones"
    )
    size.add_argument("--turn-seconds", type=float, default=2.0, metavar="S", help="an engine's answer, mean (2)")
    size.add_argument("--engine-tokens", type=float, default=0.0, metavar="N", help="tokens a second of one engine")
    size.add_argument("--node-cores", type=int, default=8, metavar="N", help="cores of a machine with sandboxes (8)")
    size.add_argument("--busy", type=float, default=0.7, metavar="SHARE", help="most of its core a process uses (0.7)")
    size.add_argument("--json", action="store_true", help="machine-readable")
    _config(size)


def _machine(commands: Any) -> None:
    """What there is on this machine, without a bus."""
    model = commands.add_parser("model", help="prepare a built-in model and print where it lies")
    model.add_argument("name", nargs="?", metavar="NAME", help="default: the configured one")
    _config(model)

    doctor = commands.add_parser("doctor", help="check this machine's prerequisites; one line each, with the mend")
    _config(doctor)

    config = commands.add_parser("config", help="print every setting with its meaning and resolved value")
    _config(config)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="tiltyard",
        description="Post-train a language model by reinforcement learning on tasks that running something checks.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="start the bus and all services and supervise them until the run has finished")
    _config(up)
    up.add_argument("--keep", action="store_true", help="stay up after the run has finished; Ctrl-C drains")
    up.add_argument("--fresh", action="store_true", help="forget an earlier run of this name and its bus first")
    up.add_argument("--secure", action="store_true", help="TLS and one user per service; short for bus.secure=true")
    up.add_argument("--plain", action="store_true", help="plain lines even in a terminal")
    up.add_argument("--results", type=Path, metavar="FILE", help="also write the report's rows as JSON")

    run = commands.add_parser("run", help="run one service in this process, as a container or a pod would")
    run.add_argument("service", choices=SERVICES)
    _config(run)

    _publish(commands)

    _bus_commands(commands)

    _janitor(commands)

    status = commands.add_parser(
        "status", help="what runs, how deep each queue is, what is in flight, the policy version"
    )
    status.add_argument("--json", action="store_true", help="machine-readable")
    _config(status)

    add_dlq(commands, _config)
    _weights(commands)
    _quotas(commands)

    add_sandbox(commands, _config)

    report = commands.add_parser("report", help="print the report of a run again")
    report.add_argument("run", nargs="?", metavar="RUN", help="name of the run (default: the configured one)")
    report.add_argument("--results", type=Path, metavar="FILE", help="also write the rows as JSON")
    _config(report)

    add_domains(commands, _config)
    _size(commands)
    _machine(commands)
    return top


def source_of(arguments: argparse.Namespace) -> Source:
    """The settings source of `-c` and `--set`."""
    return read_source(arguments.config, arguments.set)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; 0 when it went well, 1 when not, 2 for the user's mistakes."""
    arguments = parser().parse_args(argv)
    try:
        if arguments.command == "run":
            module = importlib.import_module(f"tiltyard.{arguments.service}.__main__")
            rest = ["-c", str(arguments.config)] if arguments.config else []
            return int(module.main([*rest, *(part for item in arguments.set for part in ("--set", item))]))
        from tiltyard.kit.log import keep_off_stdout  # here, so that --help stays light

        keep_off_stdout()
        module = importlib.import_module(f"tiltyard.cli.{arguments.command}")
        status = int(module.main(arguments))
        sys.stdout.flush()
        return status
    except (UserError, ValueError) as error:
        print(f"tiltyard {arguments.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read our output has gone; nothing may be written at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
