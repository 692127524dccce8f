"""The verbs of `scripts/lab`."""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from . import cluster, packages, storage

DIRECTORY = Path("/tmp/sluggish-lab")


def main(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    try:
        return _run(args)
    except packages.CannotRun as error:
        print(f"lab: cannot run here: {error}", file=sys.stderr)
        return 3
    except (cluster.LabError, OSError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


def _run(args: argparse.Namespace) -> int:
    if args.verb == "check":
        packages.check()
    elif args.verb == "install":
        return _install(torch=args.torch)
    elif args.verb == "up":
        began = time.monotonic()
        lab = cluster.up(args.nodes, args.accounting, directory=args.dir)
        took = time.monotonic() - began
        print(f"lab: {args.nodes} nodes in {took:.1f} s, {lab.dir}", file=sys.stderr)
    elif args.verb == "down":
        cluster.down(args.dir)
    elif args.verb == "exec":
        user, command = _user(args.command)
        lab = cluster.find(args.dir)
        return lab.popen(args.node, command or ["bash"], user, start_new_session=False).wait()
    elif args.verb == "storage":
        getattr(storage, args.action)(cluster.find(args.dir), args.where)
    elif args.verb == "status":
        shown = "pid,user,stat,rss,args"
        done = cluster.find(args.dir).exec("ctl", ["ps", "-ww", "-eo", shown], check=True)
        print(done.stdout, end="")
    else:
        getattr(cluster.find(args.dir), args.verb)(args.node)
    return 0


def _user(command: list[str]) -> tuple[str | None, list[str]]:
    """Takes `-u USER` and `--` off the front: argparse hands over all that follows the node."""
    user = None
    if command[:1] == ["-u"]:
        user, command = command[1] if len(command) > 1 else None, command[2:]
    return user, command[1:] if command[:1] == ["--"] else command


def _install(torch: bool) -> int:
    with tempfile.TemporaryDirectory(prefix="sluggish-lab-install-") as place:
        log = Path(place) / "log"
        try:
            packages.install(log, torch=torch)
        except subprocess.CalledProcessError as error:
            print(log.read_text(errors="replace")[-4000:], file=sys.stderr)
            print(f"lab: {' '.join(error.cmd)} failed", file=sys.stderr)
            return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/lab", description="A real Slurm on one machine.")
    parser.add_argument("-d", "--dir", type=Path, default=DIRECTORY, help="default: %(default)s")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("check", help="exit 3 and the reason where no lab can run")
    install = verbs.add_parser("install", help="apt packages, and a Python for plain users")
    install.add_argument("--torch", action="store_true", help="PyTorch for real ranks too")
    up = verbs.add_parser("up", help="start NODES nodes, a login node and the controller")
    up.add_argument("nodes", type=int, metavar="NODES")
    up.add_argument("--accounting", action="store_true", help="slurmdbd and MariaDB too")
    verbs.add_parser("down", help="end the lab and remove its directory")
    verbs.add_parser("status", help="the processes in the lab")
    run = verbs.add_parser("exec", help="run a command on ctl, login or a node")
    run.add_argument("node")
    rest = "[-u alice|bob] [--] COMMAND..."
    run.add_argument("command", nargs=argparse.REMAINDER, metavar=rest)
    disk = verbs.add_parser("storage", help="a file system that can hang (unkillable D state)")
    disk.add_argument("action", choices=["mount", "hang", "mend", "unmount"])
    disk.add_argument("where", nargs="?", default="ctl", help="a node; default: shared by all")
    for verb, what in (
        ("crash", "the node is gone at once"),
        ("boot", "start a crashed node"),
        ("cut", "nothing reaches the node any more"),
        ("mend", "undo cut"),
    ):
        verbs.add_parser(verb, help=what).add_argument("node")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
