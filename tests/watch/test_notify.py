"""Those who are told: an address that is posted to, a program that is run; and how they fail."""

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sluggish.reach import notify


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@contextmanager
def listening(status: int, location: str = "") -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A server that answers so; its address, and what came: the method and the body."""
    came: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            came.append(("POST", self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.end_headers()

        def do_GET(self) -> None:
            came.append(("GET", b""))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/secret", came
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_webhook_gets_the_document_once() -> None:
    with listening(204) as (url, came):
        assert notify.post(url, b'{"a": 1}', lambda _: None) == ""
    assert [(how, json.loads(body)) for how, body in came] == [("POST", {"a": 1})]


@pytest.mark.parametrize(("status", "times"), [(500, 3), (429, 3), (404, 1)])
def test_a_webhook_that_fails_is_said_without_its_secret(status: int, times: int) -> None:
    with listening(status) as (url, came):
        assert notify.post(url, b"{}", lambda _: None) == f"127.0.0.1: HTTP {status}"
    assert len(came) == times


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_no_delivery(status: int) -> None:
    with listening(200) as (there, arrived), listening(status, there) as (url, came):
        told = notify.post(url, b"{}", lambda _: None)
    assert told == f"127.0.0.1: HTTP {status}, it is at another address: give that one"
    assert ([how for how, _ in came], arrived) == (["POST"], [])


def test_a_webhook_that_does_not_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "POST_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert notify.post(f"http://127.0.0.1:{port}/", b"{}", lambda _: None).endswith("timed out")


def test_an_answer_without_end_is_not_waited_for() -> None:
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            link, _ = server.accept()
            with link:
                link.recv(65536)
                link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                stop.wait(20)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            began = time.monotonic()
            url = f"http://127.0.0.1:{server.getsockname()[1]}/"
            assert notify.post(url, b"{}", lambda _: None) == ""
            assert time.monotonic() - began < 5
        finally:
            stop.set()
            thread.join()


def test_a_proxy_that_refuses_is_named_by_its_variable_and_spared_by_no_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://user:hidden@127.0.0.1:1")
    with listening(200) as (url, came):
        told = notify.post(url, b"{}", lambda _: None)
        assert told.startswith("127.0.0.1 (through the proxy of http_proxy): ")
        assert "hidden" not in told
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert notify.post(url, b"{}", lambda _: None) == ""
    assert len(came) == 1


@pytest.mark.parametrize(
    "url",
    ["hooks.example/x", "ftp://a/b", "http://", "https://u:hidden@h/x", "http://h:99999/",
     "http://h/a b", "http://h/\u00e4", "http://h:x/", "http://[1/", "file:///etc/passwd"],
)  # fmt: skip
def test_an_address_to_which_nothing_can_be_sent_is_told_before_the_watch(url: str) -> None:
    why = notify.unfit(url)
    assert why
    assert "hidden" not in why


@pytest.mark.parametrize("url", ["http://h/x?y=%20", "https://h.example:8443/a", "http://[::1]:9/"])
def test_other_addresses_are_fit(url: str) -> None:
    assert notify.unfit(url) == ""


# -- programs ------------------------------------------------------------------------------------


def test_a_program_that_fails_is_said(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert notify.execute(["tee", str(out)], b"{}", {}) == ""
    assert out.read_bytes() == b"{}"
    assert notify.execute(["false"], b"", {}).startswith("false: exit code 1")
    assert "No such file" in notify.execute(["/no/such"], b"", {})
    assert "ermission denied" in notify.execute([str(out)], b"", {})
    told = notify.execute(["sh", "-c", "echo no pager >&2; exit 3"], b"x" * 1_000_000, {})
    assert told == "sh: exit code 3 no pager"


def test_a_program_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! >{tmp_path}/pid; wait"
    began = time.monotonic()
    assert notify.execute(["sh", "-c", script], b"{}", {}, 0.5) == "sh: did not end in 0 s"
    assert time.monotonic() - began < 10
    child = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 10
    while _runs(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert not _runs(child)


def test_a_program_that_leaves_a_child_behind_has_done_its_work(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! >{tmp_path}/pid"
    try:
        assert notify.execute(["sh", "-c", script], b"{}", {}, 0.5) == ""
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_ctrl_c_at_the_watch_does_not_reach_the_program(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import os; print(os.getsid(0))"]
    script = f"exec >{tmp_path}/session; exec {argv[0]} -c '{argv[2]}'"
    assert notify.execute(["sh", "-c", script], b"", {}) == ""
    assert int((tmp_path / "session").read_text()) != os.getsid(0)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
