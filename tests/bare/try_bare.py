"""Run `./dev demo` and `./dev test` on minimal Debians, as root or as somebody who is not.

Each machine is a fresh copy of what `debootstrap --variant=minbase` makes, with the working tree in it, and a chroot in
namespaces of its own: its processes and mounts end with the command that runs there. How the network is reached
(mirror, proxies, package index, certificates) is taken from this machine. Nothing here needs more than Python.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUITES = {"debian12": "bookworm", "debian13": "trixie", "sid": "sid"}
"""The last is what Debian becomes; it may be broken for reasons of its own, and has the newest Python."""
USER = "tester"

PROBES = {
    "demo": ["demo", "--help"],
    "test": ["test", "--collect-only", "--quiet", "tests/unit/sequencing/test_names.py"],
}
"""What does the set-up of a command, and hardly more."""


def main() -> int:
    arguments = parsed(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and clean up
    try:
        check_this_machine()
        commands = [[name, *(arguments.pytest if name == "test" else ())] for name in arguments.only or PROBES]
        user = USER if arguments.user else "root"
        results: list[Result] = []
        for system in arguments.systems or ["debian12", "debian13"]:
            base = provide_base(SUITES[system], arguments.mirror or mirror_of_this_machine(), fresh=arguments.fresh)
            with bare_machine(base, keep=arguments.keep) as machine:
                machine.move_in(user)
                for command in commands:
                    results += attempts(machine, user, command, system)
    except CannotTry as error:
        print(f"try-bare: {error}", file=sys.stderr)
        return 2
    print("\ntry-bare: what passed where")
    for result in results:
        print(f"  {result}")
    return 0 if all(result.passed for result in results) else 1


class CannotTry(Exception):
    """This machine lacks what the attempt needs: nothing is known about gamecast."""


@dataclass(frozen=True, slots=True)
class Result:
    system: str
    user: str
    command: str
    time_s: float
    complaint: str = ""

    @property
    def passed(self) -> bool:
        return not self.complaint

    def __str__(self) -> str:
        verdict = "passed" if self.passed else f"FAILED: {self.complaint}"
        return f"{self.system:9} {self.user:7} {self.time_s:6.0f} s  {verdict:7}  {self.command}"


def attempts(machine: Machine, user: str, command: Sequence[str], system: str) -> Iterator[Result]:
    """Root's command must do everything. A user's says once what root has to run; after that it must run through."""
    told_to_root = None
    if user != "root":
        probe = machine.run(user, "./dev", *PROBES[command[0]])
        told = re.findall(r"as root, run: (.*)", probe.output)
        complaint = ""
        if len(told) > 1 or (probe.status != 0 and not told):
            complaint = f"ended with {probe.status}, and told {len(told)} times what root has to run"
        yield Result(system, user, f"./dev {command[0]}, to hear what root has to run", probe.time_s, complaint)
        if complaint:
            return
        if told:
            told_to_root = told[0]
            ran = machine.run("root", "sh", "-c", told_to_root)
            yield Result(system, "root", told_to_root, ran.time_s, f"status {ran.status}" if ran.status else "")
    ran = machine.run(user, "./dev", *command)
    complaint = f"status {ran.status}" if ran.status else ""
    if "as root, run:" in ran.output:
        complaint += " and again something for root to do"
    yield Result(system, user, " ".join(["./dev", *command]), ran.time_s, complaint)


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    output: str
    time_s: float


@dataclass(frozen=True, slots=True)
class Machine:
    """A Debian in a directory of this machine. `environment` is what its network needs."""

    directory: Path
    environment: dict[str, str] = field(default_factory=dict)

    def move_in(self, user: str) -> None:
        """Make the user, and put the working tree, as it is, into the home."""
        if user != "root":
            self.run("root", "useradd", "--create-home", "--shell", "/bin/bash", user)
        tree = self.directory / home_of(user).relative_to("/") / "gamecast"
        for name in files_of_the_tree():
            file = tree / name
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, file, follow_symlinks=False)
        owner = tree.parent.stat()
        for place in [tree, *tree.rglob("*")]:
            os.chown(place, owner.st_uid, owner.st_gid, follow_symlinks=False)

    def run(self, user: str, *command: str) -> Ran:
        """Run a command in the working tree, and show what it writes; all that it started ends with it."""
        print(f"\ntry-bare: {user}: {' '.join(command)}", flush=True)
        home, sbin = home_of(user), "/usr/local/sbin:/usr/sbin:/sbin:" if user == "root" else ""
        environment = self.environment | {
            "HOME": str(home),
            "PATH": f"{sbin}/usr/local/bin:/usr/bin:/bin",
            "TERM": os.environ.get("TERM", "dumb"),
            "USER": user,
        }
        inside = f'cd {home}/gamecast 2>/dev/null || cd {home} 2>/dev/null; exec "$@"'
        process = subprocess.Popen(
            [
                *("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--ipc"),
                *("sh", "-c", MOUNT_AND_RUN, "try-bare", str(self.directory)),
                *("chroot", f"--userspec={user}:", str(self.directory)),
                *("env", "-i", *(f"{name}={value}" for name, value in environment.items())),
                *("sh", "-c", inside, "sh", *command),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        started_s, lines = time.monotonic(), []
        with process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    print(line, end="", flush=True)
                    lines.append(line)
            except BaseException:
                process.kill()  # and with it all that runs in its namespaces
                raise
        return Ran(process.returncode, "".join(lines), time.monotonic() - started_s)


# The shell stays, as process 1 of its namespace, to reap orphans as an init does.
MOUNT_AND_RUN = """
set -eu
machine=$1
shift
mount -t proc proc "$machine/proc"
mount -t sysfs -o ro sysfs "$machine/sys"
mkdir -p "$machine/dev/shm" "$machine/dev/pts"
mount -t tmpfs -o mode=1777 tmpfs "$machine/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$machine/dev/pts"
status=0
"$@" || status=$?
exit $status
"""


@contextmanager
def bare_machine(base: Path, *, keep: bool) -> Iterator[Machine]:
    """Copy the base; the copy is removed afterwards, unless it is to be kept for a look."""
    directory = Path(tempfile.mkdtemp(prefix=f"{base.name}-", dir=base.parent))
    try:
        subprocess.run(["cp", "--archive", "--reflink=auto", f"{base}/.", str(directory)], check=True)
        directory.chmod(0o755)
        yield Machine(directory, network_of_this_machine(directory))
    finally:
        if keep:
            print(f"try-bare: kept {directory}")
        else:
            shutil.rmtree(directory)


def provide_base(suite: str, mirror: str | None, *, fresh: bool) -> Path:
    """Return the directory of an untouched minimal Debian, made once (a minute) and kept."""
    place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gamecast-bare"
    base = place / suite
    if base.exists() and not fresh:
        return base
    place.mkdir(parents=True, exist_ok=True)
    print(f"try-bare: making a minimal Debian {suite} in {base}", flush=True)
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        made, log = Path(scratch) / suite, Path(scratch) / "log"
        with log.open("w") as out:
            command = ["debootstrap", "--variant=minbase", suite, str(made), *([mirror] if mirror else [])]
            if subprocess.run(command, stdout=out, stderr=out, check=False).returncode != 0:
                raise CannotTry(f"debootstrap failed:\n{log.read_text()[-2_000:]}")
        # As in Debian's images for containers: no daemon of a package starts, for it would take this machine's ports.
        executable(made / "usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")
        if base.exists():
            shutil.rmtree(base)
        made.rename(base)
    return base


def network_of_this_machine(machine: Path) -> dict[str, str]:
    """Give the machine what reaches the network here; returns what has to be in its environment."""
    for name in ("etc/resolv.conf", "etc/hosts"):
        (machine / name).write_bytes(Path("/", name).read_bytes())
    authorities = Path("/usr/local/share/ca-certificates")
    if authorities.is_dir():
        shutil.copytree(authorities, machine / authorities.relative_to("/"), dirs_exist_ok=True)
    acquire = said_by("apt-config", "dump", "Acquire").splitlines()
    kept = [line for line in acquire if re.match(r"Acquire::(\w+::(.*::)?Proxy|Check-(Date|Valid-Until)) ", line)]
    (machine / "etc/apt/apt.conf.d/90-of-the-host").write_text("".join(f"{line}\n" for line in kept))
    (machine / "etc/pip.conf").write_text(pip_configuration(machine))
    proxies = ("http_proxy", "https_proxy", "no_proxy")
    return {name: os.environ[name] for each in proxies for name in (each, each.upper()) if name in os.environ}


def pip_configuration(machine: Path) -> str:
    """What pip uses here to reach its index, without what lies in directories of this machine."""
    settings = {}
    for line in said_by(sys.executable, "-m", "pip", "config", "list").splitlines():
        found = re.fullmatch(r"(?:global|:env:)\.([a-z-]+)='(.*)'", line)
        if found and found[1] in {"cert", "extra-index-url", "index-url", "proxy", "timeout", "trusted-host"}:
            settings[found[1]] = " ".join(word for word in found[2].split() if not word.startswith("file:"))
    if settings.get("cert"):
        certificates = machine / "etc/certificates-of-the-host.pem"
        certificates.write_bytes(Path(settings["cert"]).read_bytes())
        settings["cert"] = "/" + str(certificates.relative_to(machine))
    return "[global]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items() if value)


def mirror_of_this_machine() -> str | None:
    """Where this machine gets Debian from; None leaves it to debootstrap."""
    targets = said_by("apt-get", "indextargets", "--format", "$(LABEL) $(REPO_URI)", "Created-By: Packages")
    return next((line.split()[1] for line in targets.splitlines() if line.startswith("Debian ")), None)


def files_of_the_tree() -> list[str]:
    """Return what git tracks or would: neither .venv nor what is ignored."""
    listed = said_by(
        *("git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT)),
        *("ls-files", "-z", "--cached", "--others", "--exclude-standard"),
    )
    files = [name for name in listed.split("\0") if name and (ROOT / name).exists()]
    if not files:
        raise CannotTry(f"git lists no files in {ROOT}: run this in a clone, with git installed")
    return files


def said_by(*command: str) -> str:
    """Return the standard output of a command; nothing if it fails or does not exist."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""


def check_this_machine() -> None:
    if os.geteuid() != 0:
        raise CannotTry("only root can make a chroot: run this as root")
    search = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
    os.environ["PATH"] = search  # after a plain `su` root's PATH lacks them
    if shutil.which("debootstrap") is None:
        raise CannotTry("there is no debootstrap: apt-get install debootstrap (elsewhere also debian-archive-keyring)")


def home_of(user: str) -> Path:
    return Path("/root") if user == "root" else Path("/home", user)


def executable(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev try-bare",
        description="Run ./dev demo and ./dev test on minimal Debians in chroots. Needs root, debootstrap, a network, "
        "some 3 GB of disk and, with all tests, as long as they take.",
    )
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{', '.join(SUITES)} (default: the first two)")
    parser.add_argument("--user", action="store_true", help="as a user who first has to ask root (default: as root)")
    parser.add_argument("--only", action="append", choices=list(PROBES), help="this command, not both")
    parser.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="all that follows goes to ./dev test")
    parser.add_argument("--mirror", help="of Debian (default: this machine's)")
    parser.add_argument("--fresh", action="store_true", help="make the cached minimal Debians anew")
    parser.add_argument("--keep", action="store_true", help="keep the machines for a look, and say where they are")
    parsed = parser.parse_args(arguments)
    if unknown := set(parsed.systems) - set(SUITES):
        parser.error(f"no such system: {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    return parsed


if __name__ == "__main__":
    raise SystemExit(main())
