"""SSH: fabric opens the connection as ssh_config says, paramiko's channel carries the script."""

import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluggish.reach.errors import ADOPT
from sluggish.reach.model import Answer, Failure
from sluggish.text import is_node_name, safe

CONNECT_S = 5.0
BANNER_S = 5.0
AUTH_S = 6.0
TRIES = 3
"""Of a connection whose banner does not come: sshd sheds load by chance (MaxStartups)."""
CHUNK = 1 << 16
MOST_STDERR = 1 << 16
POLL_S = 0.2
SYSTEM_KNOWN = (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))


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
    name: str = "ssh"
    _open: dict[int, Any] = field(default_factory=dict)
    _gateways: dict[str, Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _gate: threading.Lock = field(default_factory=threading.Lock)
    _config: Any = None
    _keys: Any = None
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
        try:
            if not is_node_name(node):
                raise ValueError(f"not a node name: {safe(node, 80)}")
            connection = self._connect(node, began + deadline_s)
        except Exception as problem:  # paramiko raises a dozen unrelated types
            elapsed = time.monotonic() - began
            failure, says = of_exception(problem, elapsed, self.connect_s, self.auth_s, node)
            return Answer(node=node, failure=failure, says=says, elapsed_s=elapsed)
        connect_s = time.monotonic() - began
        on_connect()
        try:
            failure, says, stderr = _talk(connection, script, began + deadline_s, sink)
        except Exception as problem:
            failure, says, stderr = "died", safe(f"{type(problem).__name__}: {problem}", 300), b""
        finally:
            with self._lock:
                self._open.pop(id(connection), None)
            _close(connection)
        return Answer(
            node=node,
            failure=failure,
            says=says,
            connect_s=connect_s,
            elapsed_s=time.monotonic() - began,
            stderr=stderr.decode("utf-8", "replace"),
        )

    def close(self) -> None:
        """Drops every connection at once."""
        with self._lock:
            self._closed = True
            connections = [*self._open.values(), *self._gateways.values()]
        for connection in connections:
            _close(connection)

    def _connect(self, node: str, until: float) -> Any:
        for attempt in range(TRIES):
            connection = self._connection(node)
            with self._lock:
                self._open[id(connection)] = connection
                closed = self._closed
            try:
                if closed:
                    raise ConnectionAbortedError("stopped")
                connection.open()
                return connection
            except Exception as problem:
                with self._lock:
                    self._open.pop(id(connection), None)
                _close(connection)
                again = attempt + 1 < TRIES and time.monotonic() + 2 < until
                if not again or not _sheds_load(problem):
                    raise
                time.sleep(random.uniform(0.1, 0.6) * (attempt + 1))
        raise AssertionError("unreachable")

    def _connection(self, node: str) -> Any:
        from fabric import Connection

        config = self._settings()
        connection = Connection(
            node,
            user=self.user,
            port=self.port,
            config=config,
            gateway=self._gateway(node),
            forward_agent=False,
            connect_timeout=self.connect_s,
            connect_kwargs=self._limits(),
        )
        _only_known_keys(connection, self._known())
        return connection

    def _limits(self) -> dict[str, Any]:
        return {"banner_timeout": BANNER_S, "auth_timeout": self.auth_s, "channel_timeout": 10.0}

    def _settings(self) -> Any:
        """fabric's Config, read once: ssh_config of this person and this machine."""
        from fabric import Config

        with self._lock:
            if self._config is None:
                logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
                if self.config_file:
                    self._config = Config(runtime_ssh_path=self.config_file)
                else:
                    self._config = Config()
            return self._config

    def _gateway(self, node: str) -> Any:
        """The shared connection to the jump host that ssh_config names; None without one."""
        options = self._settings().base_ssh_config.lookup(node)
        jump = options.get("proxyjump", "none")
        if jump == "none" or "," in jump:
            return None  # a chain of them is fabric's own matter
        with self._gate:
            if jump not in self._gateways:
                from fabric import Connection

                gateway = Connection(
                    jump,
                    config=self._settings(),
                    forward_agent=False,
                    connect_timeout=self.connect_s,
                    connect_kwargs=self._limits(),
                )
                _only_known_keys(gateway, self._known())
                try:
                    gateway.open()
                except Exception as problem:
                    raise GatewayError(f"jump host {jump}: {problem}") from problem
                self._gateways[jump] = gateway
            return self._gateways[jump]

    def _known(self) -> Any:
        """All known host keys; lines that paramiko cannot read are passed over by it."""
        import paramiko

        with self._lock:
            if self._keys is None:
                keys = paramiko.HostKeys()
                for file in (Path.home() / ".ssh/known_hosts", *SYSTEM_KNOWN, *self.known_hosts):
                    with suppress(OSError, paramiko.SSHException):
                        keys.load(str(file))
                self._keys = keys
            return self._keys


class GatewayError(Exception):
    """The jump host did not let us through."""


def _only_known_keys(connection: Any, known: Any) -> None:
    """fabric takes any key without a word: here an unknown one is refused."""
    import paramiko

    client = connection.client
    client._system_host_keys = known  # read once for all nodes, and never written
    client.set_missing_host_key_policy(paramiko.RejectPolicy())


def _sheds_load(problem: Exception) -> bool:
    words = str(problem)
    return "banner" in words or isinstance(problem, ConnectionResetError)


def _talk(
    connection: Any, script: bytes, until: float, sink: Callable[[bytes], None]
) -> tuple[Failure | None, str, bytes]:
    """The script in, both outputs out, until the far side ends, the line breaks or time is over."""
    channel = connection.client.get_transport().open_session(timeout=10.0)
    channel.settimeout(POLL_S)
    channel.exec_command("sh -s")
    sender = threading.Thread(target=_send, args=(channel, script, until), daemon=True)
    sender.start()
    stderr = bytearray()
    while True:
        moved = False
        if channel.recv_ready():
            sink(channel.recv(CHUNK))
            moved = True
        if channel.recv_stderr_ready():
            data = channel.recv_stderr(CHUNK)
            stderr += data[: max(0, MOST_STDERR - len(stderr))]
            moved = True
        if moved:
            continue
        if time.monotonic() >= until:
            return "timeout", "the script did not end within its deadline", bytes(stderr)
        if channel.exit_status_ready() or channel.eof_received or channel.closed:
            break
        with suppress(TimeoutError, socket.timeout):
            data = channel.recv(CHUNK)
            if not data:
                break
            sink(data)
    while channel.recv_ready():
        sink(channel.recv(CHUNK))
    while channel.recv_stderr_ready():
        stderr += channel.recv_stderr(CHUNK)[: max(0, MOST_STDERR - len(stderr))]
    channel.status_event.wait(min(2.0, max(0.1, until - time.monotonic())))
    code = channel.exit_status
    words = stderr.decode("utf-8", "replace").strip().splitlines()
    if code == -1:
        return "died", "the connection ended in mid-answer", bytes(stderr)
    if code in (126, 127):
        return "no shell", safe(words[0], 300) if words else f"exit code {code}", bytes(stderr)
    return None, "", bytes(stderr)


def _send(channel: Any, script: bytes, until: float) -> None:
    left = memoryview(script)
    with suppress(OSError, EOFError):
        while left and time.monotonic() < until:
            try:
                left = left[channel.send(left[:CHUNK]) :]
            except TimeoutError:
                continue
        channel.shutdown_write()


def _close(connection: Any) -> None:
    """Never waits: fabric's own close talks to the far side."""
    with suppress(Exception):
        transport = connection.client.get_transport()
        if transport is not None:
            transport.active = False
            transport.sock.close()
    with suppress(Exception):
        connection.client.close()


def of_exception(
    problem: Exception, elapsed_s: float, connect_s: float, auth_s: float, node: str
) -> tuple[Failure, str]:
    """Why no shell was there. One text of paramiko has several causes: the time decides."""
    import paramiko
    from paramiko.ssh_exception import NoValidConnectionsError

    words = safe(str(problem), 300) or type(problem).__name__
    if isinstance(problem, paramiko.BadHostKeyException):
        return "host key", (
            f"its host key has changed: compare it with the node's console first, then "
            f"ssh-keygen -R {node}; ssh-keyscan {node} >> ~/.ssh/known_hosts"
        )
    if "not found in known_hosts" in words:
        return "host key", (
            f"its host key is not known: ssh-keyscan {node} >> ~/.ssh/known_hosts (compare it "
            "first), or --transport openssh where keys are signed by an authority"
        )
    if isinstance(problem, GatewayError):
        return "unreachable", words
    if isinstance(problem, paramiko.AuthenticationException):
        if "timeout" in words.lower() or elapsed_s >= auth_s:
            return "auth hangs", f"no end of the login within {auth_s:.0f} s"
        hint = f" ({ADOPT})" if "EOF" in words or "shut down" in words else ""
        return "auth denied", words + hint
    if isinstance(problem, NoValidConnectionsError):
        quick = elapsed_s < 1.0
        return ("refused", words) if quick else ("unreachable", words)
    if isinstance(problem, socket.gaierror):
        return "unreachable", f"the name does not resolve: {words}"
    if isinstance(problem, TimeoutError):
        return "unreachable", f"no answer to the connection within {connect_s:.0f} s"
    if isinstance(problem, (EOFError, paramiko.SSHException, ConnectionError)):
        if "No existing session" in words and elapsed_s >= connect_s + 1:
            return "auth hangs", words
        return "no banner", f"takes the connection and does not speak SSH: {words}"
    if isinstance(problem, OSError):
        return "unreachable", words
    return "not run", f"{type(problem).__name__}: {words}"
