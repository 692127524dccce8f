"""A site's settings: one optional YAML file, environment variables over it, defaults under it."""

import difflib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec
import yaml

from sluggish.evidence.source import EvidenceError

MAX_BYTES = 1 << 20
NOT_THERE = ("No such file", "Not a directory")
CLOSED = ("no answer", "Permission denied")
"""A home that hangs, or another's after `su`: said, and the site's own file is read."""
READ_S = 2.0
"""For a file that lies on storage which hangs: a home, mostly."""
PREFIX = "SLUGGISH_"


class ConfigError(EvidenceError):
    """One line with the file (or variable) and the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ssh:
    user: str | None = None
    config: str | None = None
    """An ssh_config instead of the user's own."""
    connect_s: float = 3.0
    """For TCP alone, which a living kernel answers in milliseconds (a lost packet goes again after
    1 s): what one dead node costs a look."""
    workers: int = 32
    """Handshakes at one time; more only delays the first answer."""
    rate: float = 50.0
    """New connections a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    dir: str | None = None
    max_mb: int = 2048
    max_days: int = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    transport: Literal["auto", "ssh", "openssh", "srun", "local"] = "auto"
    ssh: Ssh = Ssh()
    openssh_command: str = "ssh -T -o BatchMode=yes {node} sh -s"
    window_s: float = 10.0
    probe_s: float = 8.0
    deadline_s: float = 60.0
    state: State = State()
    reason_template: str = "sluggish: {rule} {what} job={job}"
    webhook: str | None = None
    log_patterns: tuple[str, ...] = ()
    """Globs of job logs that Slurm does not name; %j and the like as in `sbatch -o`.

    Each carries the job's number (%j, %A or %J): without it another job's log would be taken.
    """
    sudo: bool = False
    history_db: str | None = None
    """The ledger of `sluggish history`; else `history.db` in the state directory."""
    cloud: bool = False
    """The nodes are a provider's instances: given back, not reset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """The settings and where each came from: a path, a variable's name, or `default`."""

    config: Config
    origins: Mapping[str, str]


def places_of(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Where the file may lie; one that SLUGGISH_CONFIG names has to be there."""
    named = env.get("SLUGGISH_CONFIG")
    if named:
        return (Path(named),)
    home = env.get("XDG_CONFIG_HOME") or f"{env.get('HOME', '')}/.config"
    places = (Path(home) / "sluggish/config.yaml", Path("/etc/sluggish/config.yaml"))
    return tuple(path for path in places if path.is_absolute())


def load(env: Mapping[str, str] | None = None) -> Loaded:
    """Defaults, then the file, then the environment. ConfigError in one line."""
    env = os.environ if env is None else env
    told, where = _first(places_of(env), must="SLUGGISH_CONFIG" in env)
    values = _flat(told, where)
    origins = dict.fromkeys(values, where)
    for key in keys():
        name = PREFIX + key.replace(".", "_").upper()
        text = env.get(name, env.get("SLUGGISH_STATE") if key == "state.dir" else None)
        if text is not None:
            values[key] = _from_text(text, name)
            origins[key] = name if name in env else "SLUGGISH_STATE"
    config = Config()
    for key, value in values.items():
        config = _set(config, key, value, origins[key])
    _check(config, origins)
    return Loaded(config=config, origins={key: origins.get(key, "default") for key in keys()})


def keys() -> tuple[str, ...]:
    """Every key, sections with a dot: `ssh.user`."""
    found: list[str] = []
    for each in fields(Config):
        value = each.default
        if is_dataclass(value) and not isinstance(value, type):
            found += [f"{each.name}.{inner.name}" for inner in fields(value)]
        else:
            found.append(each.name)
    return tuple(found)


def value_of(config: Config, key: str) -> Any:
    """The value behind a dotted key."""
    found: Any = config
    for part in key.split("."):
        found = getattr(found, part)
    return found


def _first(places: Sequence[Path], *, must: bool) -> tuple[dict[str, Any], str]:
    """What the first file says that is there, and its path. One that hangs is passed over, aloud.

    Read by a child: a process of ours that waits for dead storage cannot even be killed.
    """
    from sluggish.reach.command import run

    for path in places:
        ran = run(("cat", "--", str(path)), READ_S, cap_bytes=MAX_BYTES)
        why = _why(ran.error, ran.says)
        if ran.error is None and ran.exit_code == 0:
            return _read(path, ran.stdout), str(path)
        if must or not why.startswith((*NOT_THERE, *CLOSED)):
            raise ConfigError(f"{path}: {why}")
        if why.startswith(CLOSED):
            _warn(f"{path}: {why}: passed over")
    return {}, ""


def _why(error: str | None, says: str) -> str:
    if error == "truncated":
        return f"larger than {MAX_BYTES >> 20} MiB"
    if error in ("timeout", "stuck"):
        return f"no answer in {READ_S:.0f} s"
    return says.rpartition(": ")[2] or error or "not readable"


def _warn(what: str) -> None:
    if sys.__stderr__ is not None:
        print(f"sluggish: {what}", file=sys.stderr)


def _read(path: Path, content: bytes) -> dict[str, Any]:
    try:
        told = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as problem:
        what = " ".join(str(problem).split())[:200]
        raise ConfigError(f"{path}: not readable as YAML: {what}") from None
    if told is None:
        return {}
    if not isinstance(told, dict):
        raise ConfigError(f"{path}: expected keys with values")
    return {str(key): value for key, value in told.items()}


def _flat(told: Mapping[str, Any], where: str) -> dict[str, Any]:
    sections = {key.split(".")[0] for key in keys() if "." in key}
    found: dict[str, Any] = {}
    for key, value in told.items():
        if key in sections and isinstance(value, dict):
            found |= {f"{key}.{inner}": one for inner, one in value.items()}
        elif key in sections:
            raise ConfigError(f"{where}: {key}: expected keys with values below it")
        else:
            found[key] = value
    for key in found:
        if key not in keys():
            near = difflib.get_close_matches(key, keys(), n=1, cutoff=0.4)
            hint = f"; the nearest key is {near[0]}" if near else ""
            raise ConfigError(f"{where}: unknown key {key[:60]}{hint}")
    return found


def _from_text(text: str, name: str) -> Any:
    """A variable's text as YAML would read it: 3 is a number, `true` a yes."""
    try:
        return yaml.safe_load(text) if len(text) < MAX_BYTES else None
    except (yaml.YAMLError, ValueError):
        return text


def _set(config: Config, key: str, value: Any, where: str) -> Config:
    section, _, name = key.rpartition(".")
    holder: Any = getattr(config, section) if section else config
    wanted = next(each.type for each in fields(holder) if each.name == name)
    try:
        checked = msgspec.convert(value, wanted)
    except msgspec.ValidationError as problem:
        words = get_args(wanted) if get_origin(wanted) is Literal else ()
        write = f": write one of {', '.join(words)}" if words else ""
        raise ConfigError(f"{where}: {key}: {problem}{write}") from None
    changed: Any = replace(holder, **{name: checked})
    return replace(config, **{section: changed}) if section else changed


def _check(config: Config, origins: Mapping[str, str]) -> None:
    """What a type cannot say."""
    from sluggish.remedies import reason_problem

    def refuse(key: str, why: str) -> None:
        raise ConfigError(f"{origins.get(key, 'default')}: {key}: {why}")

    for key in ("ssh.connect_s", "ssh.workers", "ssh.rate", "probe_s", "deadline_s"):
        if not 0 < value_of(config, key) <= 86400:
            refuse(key, "expected a number above 0")
    for key in ("window_s", "state.max_mb", "state.max_days"):
        if not 0 <= value_of(config, key) <= 1e9:
            refuse(key, "expected 0 or more")
    if why := reason_problem(config.reason_template):
        refuse("reason_template", why)
    if "{node}" not in config.openssh_command.split():
        refuse("openssh_command", "expected {node} as a word of its own")
    if config.webhook is not None and not re.match(r"https?://[^\s]+\Z", config.webhook):
        refuse("webhook", "expected an http or https address")
    for pattern in config.log_patterns:
        if not re.search(r"%\d{0,2}[jAJ]", pattern):
            refuse("log_patterns", f"expected the job's number (%j) in {pattern[:80]!r}")
    for key in ("state.dir", "ssh.config", "history_db"):
        if (path := value_of(config, key)) and not path.startswith(("/", "~/")):
            refuse(key, "expected an absolute path")
