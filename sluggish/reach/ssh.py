"""SSH: fabric opens the connection as ssh_config says, paramiko's channel carries the script.

fabric's own `run` is quadratic in the size of the output and its time limit is a race; it takes any
host key. So it only opens, with our own check of the key, and every wait has an end.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluggish.reach import ssh_keys
from sluggish.reach.errors import DEAD_HOME, OPENSSH, Phase, of_ssh
from sluggish.reach.greeting import Greeting
from sluggish.reach.model import Answer, Failure
from sluggish.reach.ssh_config import NotForUs, answered, home_that_answers, load
from sluggish.reach.ssh_jump import JUMP_LOST, JumpSocket, jump_lost
from sluggish.reach.ssh_log import SshLog
from sluggish.reach.ssh_talk import CHANNEL_S, POLL_S, Talk
from sluggish.text import is_node_name, safe

CONNECT_S = 5.0
BANNER_S = 5.0
AUTH_S = 6.0
TRIES = 4
"""Of a connection that sshd drops before its first line: it sheds load by chance (MaxStartups)."""
PAUSE_S = (0.3, 1.0)
"""Before the next try; doubled each time."""


class NoSsh(Exception):
    """No connection to a node or jump host."""

    def __init__(self, failure: Failure, says: str, log: str = "", dropped: bool = False) -> None:
        super().__init__(says)
        self.failure: Failure = failure
        self.says = says
        self.log = log
        self.dropped = dropped
        """sshd hung up before its first line: another try may pass."""


@dataclass(slots=True)
class _Open:
    """A connection that is being made or used, and when it must have come to its next step."""

    connection: Any
    until: float
    late: bool = False


@dataclass(slots=True)
class _Gate:
    """A jump host: connected once, by whoever comes first; the others wait for the outcome."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: Any = None
    problem: NoSsh | None = None


@dataclass(slots=True)
class SshTransport:
    """One connection a node, one shared connection a jump host. See Transport."""

    user: str | None = None
    config_file: str | None = None
    """An ssh_config in place of the user's and the system's."""
    known_hosts: Sequence[Path] = ()
    """Files besides the user's and the system's."""
    port: int | None = None
    connect_s: float = CONNECT_S
    auth_s: float = AUTH_S
    banner_s: float = BANNER_S
    name: str = "ssh"
    at_once: int | None = None
    quiet_s: float | None = None
    _open: dict[int, _Open] = field(default_factory=dict)
    _gates: dict[tuple[str, ...], _Gate] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _setup: threading.Lock = field(default_factory=threading.Lock)
    _config: Any = None
    _told: dict[str, Any] = field(default_factory=dict)
    _dead_home: bool = False
    _keys: ssh_keys.Keys | None = None
    _log: SshLog = field(default_factory=SshLog)
    _closed: bool = False

    def run(
        self,
        node: str,
        script: bytes,
        deadline_s: float,
        sink: Callable[[bytes], None],
        on_connect: Callable[[], None],
    ) -> Answer:
        """See Transport."""
        began = time.monotonic()
        until = began + deadline_s
        try:
            connection = self._connect(node, until)
        except NoSsh as problem:
            return Answer(
                node=node, failure=problem.failure, says=problem.says,
                elapsed_s=time.monotonic() - began, stderr=problem.log,
            )  # fmt: skip
        talk = Talk(greeting=Greeting(), sink=sink, until=until, quiet_s=self.quiet_s)

        def here() -> None:
            talk.connect_s = time.monotonic() - began
            on_connect()

        try:
            failure, says = talk.through(connection, script, here)
        except Exception as problem:  # paramiko raises a dozen unrelated types
            failure, says = self._broken(connection, problem, talk, began)
        finally:
            lost = jump_lost(connection)
            self._forget(connection)
        if failure and lost:
            failure = failure if talk.connect_s else "not run"
            says = f"{JUMP_LOST}: {says}"
        words = talk.greeting.noise + bytes(talk.stderr)
        log = self._log.take(node)
        return Answer(
            node=node, failure=failure, says=says, connect_s=talk.connect_s,
            elapsed_s=time.monotonic() - began,
            stderr=words.decode("utf-8", "replace") + (log if failure else ""),
        )  # fmt: skip

    def close(self) -> None:
        """Drops every connection at once."""
        with self._lock:
            self._closed = True
            connections = [one.connection for one in self._open.values()]
        for connection in connections:
            _drop(connection)

    def _broken(
        self, connection: Any, problem: Exception, talk: Talk, began: float
    ) -> tuple[Failure, str]:
        entry = self._open.get(id(connection))
        late = bool(entry and entry.late)
        if self._closed:
            return "not run", "stopped"
        if talk.connect_s is None:
            return of_ssh(problem, "session", time.monotonic() - began, late=late)
        if late:
            return "timeout", "the script did not end within its deadline"
        return "died", safe(f"the connection broke in mid-answer: {problem!r}", 300)

    # -- connecting ------------------------------------------------------------------------------

    def _connect(self, node: str, until: float) -> Any:
        """An open connection to a node, after a few tries where its sshd sheds load."""
        if not is_node_name(node):
            raise NoSsh("not run", f"not a node name: {safe(node, 80)}")
        try:
            self._prepare()
            gateway = self._via(node)
        except NotForUs as problem:
            raise NoSsh("not run", safe(str(problem), 300)) from None
        for attempt in range(TRIES):
            try:
                return self._try(node, node, gateway, until, user=self.user, port=self.port)
            except NoSsh as problem:
                pause = random.uniform(*PAUSE_S) * 2**attempt
                if (
                    not problem.dropped
                    or attempt + 1 == TRIES
                    or time.monotonic() + pause + 1 > until
                ):
                    raise
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _try(self, name: str, hop: str, gateway: Any, until: float, **who: Any) -> Any:
        """One connection; `name` is what the log and the message call it."""
        began = time.monotonic()
        options = self._options(_host_of(hop))
        checked = self._known().checker(options, _host_of(hop), gateway is not None)
        connection = self._connection(hop, checked, options, who)
        connection.client.set_log_channel(self._log.channel(name))
        hands_s = self.connect_s + self.banner_s + self.auth_s + CHANNEL_S
        entry = _Open(connection=connection, until=min(until, began + hands_s))
        with self._lock:
            self._open[id(connection)] = entry
            closed = self._closed
        try:
            if closed:
                raise NoSsh("not run", "stopped")
            if gateway is not None:
                # not fabric's own way: its bare channel can break the jump host's connection
                there = (connection.host, connection.port)
                through = gateway.client.get_transport().open_through(there, self.connect_s + 1)
                connection.connect_kwargs["sock"] = JumpSocket(through)
            connection.open()
            entry.until = until
            return connection
        except Exception as problem:
            lost = jump_lost(connection) or (gateway is not None and not gateway.is_connected)
            self._forget(connection)
            if self._closed:
                raise NoSsh("not run", "stopped") from None
            if lost:
                raise NoSsh("not run", JUMP_LOST, self._log.take(name)) from None
            log = self._log.take(name)
            if isinstance(problem, ssh_keys.KeyRefused):
                raise NoSsh("host key", str(problem), log) from None
            elapsed = time.monotonic() - began
            phase = _phase(connection)
            failure, says = of_ssh(problem, phase, elapsed, late=entry.late, log=log)
            dropped = failure == "no banner" and elapsed < self.banner_s - 0.5
            raise NoSsh(failure, says, log, dropped) from problem

    def _connection(
        self, hop: str, checked: ssh_keys.Checker, options: Any, who: dict[str, Any]
    ) -> Any:
        from fabric import Config, Connection

        only = options.get("identitiesonly", "no").lower() == "yes"
        connection: Any = Connection(
            hop,
            config=Config(ssh_config=answered(options), lazy=True),  # its own: not thread-safe
            gateway=False,  # None would make fabric open one of its own
            forward_agent=False,
            connect_timeout=max(1, round(self.connect_s)),  # fabric cuts it to whole seconds
            connect_kwargs={
                "banner_timeout": self.banner_s,
                "auth_timeout": self.auth_s,
                "channel_timeout": CHANNEL_S,
                "look_for_keys": not only,
                "allow_agent": not only,
                "transport_factory": checked.transport,
            },
            **who,
        )
        checked.meets(connection.host, connection.port)
        connection.client.set_missing_host_key_policy(checked)
        return connection

    def _via(self, name: str, seen: tuple[str, ...] = ()) -> Any:
        """The shared connection through which a host is reached; None where it is reached directly.

        Raises NoSsh where a jump host lets nobody through.
        """
        options = self._options(_host_of(name))
        if options.get("proxycommand") and "proxyjump" not in options:
            raise NotForUs(f"ssh_config has a ProxyCommand for {name}: use {OPENSSH}")
        jump = options.get("proxyjump", "none").strip()
        hops = tuple(hop.strip().removeprefix("ssh://") for hop in jump.split(","))
        known = (*seen, name)
        if jump.lower() == "none" or any(_host_of(h) in map(_host_of, known) for h in hops):
            return None  # a rule for every host does not mean the jump host itself
        gateway = self._via(hops[0], known)
        for number in range(1, len(hops) + 1):
            gateway = self._gate(hops[:number], gateway)
        return gateway

    def _gate(self, hops: tuple[str, ...], gateway: Any) -> Any:
        with self._lock:
            gate = self._gates.setdefault(hops, _Gate())
        with gate.lock:
            if gate.connection is None and gate.problem is None:
                for attempt in range(TRIES):
                    try:
                        far = time.monotonic() + 86_400
                        gate.connection = self._try(hops[-1], hops[-1], gateway, far)
                        break
                    except NoSsh as problem:
                        gate.problem = problem
                        if not problem.dropped:
                            break
                        time.sleep(random.uniform(*PAUSE_S) * 2**attempt)
            if gate.connection is not None:
                if gate.connection.is_connected:
                    return gate.connection
                gate.problem = NoSsh("unreachable", "its connection broke")
        assert gate.problem is not None
        # whatever it was: nothing was heard of the node itself
        raise NoSsh(
            "not run", f"jump host {safe(hops[-1], 80)}: {gate.problem.says}", gate.problem.log
        )

    # -- what is read once -----------------------------------------------------------------------

    def _prepare(self) -> None:
        """ssh_config and the files' homes; raises NotForUs."""
        with self._setup:
            if self._config is not None:
                return
            if self._dead_home:
                raise NotForUs(DEAD_HOME)
            warm_up()
            home = home_that_answers()
            load_fabric()
            self._dead_home = home is None
            if home is None:  # paramiko looks for keys there whatever it is told
                raise NotForUs(DEAD_HOME)
            config = load(self.config_file, home)
            self._keys = ssh_keys.Keys(home=home, more=tuple(self.known_hosts))
            self._config = config
            threading.Thread(target=self._watch, daemon=True).start()

    def _options(self, host: str) -> Any:
        """What ssh_config says of a host, looked up once: a lookup reads every block twice."""
        with self._lock:
            found = self._told.get(host)
        if found is None:
            found = self._config.lookup(host)
            with self._lock:
                self._told[host] = found
        return found

    def _known(self) -> ssh_keys.Keys:
        assert self._keys is not None
        return self._keys

    def _watch(self) -> None:
        """Ends what is late wherever it waits: a hanging login, a channel that never opens."""
        while not self._closed:
            now = time.monotonic()
            with self._lock:
                late = [one for one in self._open.values() if one.until + POLL_S < now]
            for one in late:
                one.late = True
                _drop(one.connection)
            time.sleep(POLL_S)

    def _forget(self, connection: Any) -> None:
        with self._lock:
            self._open.pop(id(connection), None)
        _drop(connection)


def warm_up() -> None:
    """Loads what a first connection needs (0.15 CPU s) while somebody waits for something else."""
    threading.Thread(target=load_fabric, daemon=True).start()


_loading = threading.Lock()


def load_fabric() -> None:
    """One thread at a time: of modules that import one another two threads get half a one."""
    with _loading, suppress(ImportError):  # whoever connects will say so
        import fabric

        del fabric


def _phase(connection: Any) -> Phase:
    transport = connection.client.get_transport()
    if transport is None:
        return "connect"
    if not transport.remote_version:
        return "banner"
    if not transport.initial_kex_done:
        return "keys"
    return "session" if transport.is_authenticated() else "login"


def _host_of(hop: str) -> str:
    """The host's name of [user@]host[:port]."""
    host = hop.rpartition("@")[2]
    return host if host.count(":") != 1 else host.partition(":")[0]


def _drop(connection: Any) -> None:
    """Never waits: fabric's own close talks to the far side."""
    with suppress(Exception):
        transport = connection.client.get_transport()
        if transport is not None:
            transport.active = False
            transport.sock.close()
            transport.packetizer.close()
