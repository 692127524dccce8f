"""known_hosts as OpenSSH reads it: wildcards, hashes, ports, authorities, revoked keys."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluggish.reach.known_hosts import read, standing

KEY, OTHER = "AAAAC3NzaC1lZDI1NTE5AAAAIone", "AAAAC3NzaC1lZDI1NTE5AAAAItwo"
KIND = "ssh-ed25519"


def said(text: str, host: str = "node01", port: int = 22, key: str = KEY) -> str:
    return standing(read([("file", text)]).of(host, port), KIND, key)[0]


@pytest.mark.parametrize(
    ("names", "host", "port", "wanted"),
    [
        ("node01", "node01", 22, "known"),
        ("NODE01,10.0.0.1", "node01", 22, "known"),
        ("node*", "node01", 22, "known"),
        ("node0?", "node01", 22, "known"),
        ("node*,!node01", "node01", 22, "unknown"),
        ("node02", "node01", 22, "unknown"),
        ("[node01]:2222", "node01", 2222, "known"),
        ("[node01]:2222", "node01", 22, "unknown"),
        ("[node*]:2222", "node01", 2222, "known"),
        ("node01", "node01", 2222, "known"),  # as OpenSSH: the bare name is asked after the port
    ],
)
def test_names(names: str, host: str, port: int, wanted: str) -> None:
    assert said(f"{names} {KIND} {KEY} comment\n", host, port) == wanted


def test_another_key_of_a_known_host_is_a_change_and_one_of_two_is_enough() -> None:
    assert said(f"node01 {KIND} {OTHER}\n") == "changed"
    assert said(f"node01 {KIND} {OTHER}\nnode01 {KIND} {KEY}\n") == "known"


def test_a_revoked_key_is_refused_though_it_is_known() -> None:
    assert said(f"node01 {KIND} {KEY}\n@revoked * {KIND} {KEY}\n") == "revoked"


def test_an_authority_alone_makes_no_key_known() -> None:
    authority = f"@cert-authority *.cluster,node* {KIND} {OTHER}\n"
    assert said(authority) == "authority"
    assert said(authority + f"node01 {KIND} {KEY}\n") == "known"
    assert said(authority, host="login") == "unknown"


def test_hashed_names_of_ssh_keygen_are_found(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    made = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(made)], check=True)
    kind, key = made.with_suffix(".pub").read_text().split()[:2]
    file.write_text(f"node01 {kind} {key}\n[node02]:2222 {kind} {key}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    known = read([(str(file), file.read_text())])
    assert "node01" not in file.read_text()
    assert standing(known.of("node01", 22), kind, key) == ("known", str(file))
    assert standing(known.of("node02", 2222), kind, key) == ("known", str(file))
    assert standing(known.of("node03", 22), kind, key) == ("unknown", "")


@given(st.text(max_size=300))
def test_any_file_is_read_and_makes_nothing_known(text: str) -> None:
    assert said(text, key="no such key") != "known"
