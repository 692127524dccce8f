"""ssh_config with Include, as OpenSSH reads it or refused."""

from pathlib import Path

import pytest

from sluggish.reach.ssh_config import NotForUs, load


def config(home: Path, main: str, **others: str):
    (home / ".ssh/d").mkdir(parents=True)
    file = home / ".ssh/config"
    file.write_text(main)
    for name, text in others.items():
        (home / ".ssh/d" / name).write_text(text)
    return load(str(file), home)


def test_included_files_are_read_and_what_follows_is_for_every_host(tmp_path: Path) -> None:
    told = config(tmp_path, "Include d/*\nUser alice\n", a="Host node*\n  Port 2222\n")
    assert told.lookup("node01")["port"] == "2222"
    assert told.lookup("node01")["user"] == "alice"
    assert told.lookup("login")["user"] == "alice"
    assert "port" not in told.lookup("login")


def test_options_may_be_included_in_a_block_and_blocks_may_not(tmp_path: Path) -> None:
    told = config(tmp_path / "1", "Host node*\n  Include ~/.ssh/d/a\n", a="Port 7\n")
    assert told.lookup("node01")["port"] == "7"
    assert "port" not in told.lookup("login")
    with pytest.raises(NotForUs, match="--transport openssh"):
        config(tmp_path / "2", "Host node*\n  Include ~/.ssh/d/a\n", a="Host x\n  Port 7\n")


def test_what_is_not_there_is_no_error_unless_it_was_named(tmp_path: Path) -> None:
    assert config(tmp_path, "Include d/none /no/such/*\nUser bob\n").lookup("x")["user"] == "bob"
    with pytest.raises(NotForUs, match="no such file"):
        load(str(tmp_path / "none"), tmp_path)


def test_a_circle_and_a_line_that_nobody_understands_are_said(tmp_path: Path) -> None:
    with pytest.raises(NotForUs, match="in a circle"):
        config(tmp_path / "1", "Include d/a\n", a="Include config d/a\n")
    with pytest.raises(NotForUs, match="--transport openssh"):
        config(tmp_path / "2", "Match tagged gpu\n  Port 7\n")
    with pytest.raises(NotForUs, match="--transport openssh"):
        config(tmp_path / "3", 'Match host x exec "sleep 99"\n  Port 7\n')
    told = config(tmp_path / "4", "Match final all\n Include d/a\n", a="Port 7\n")
    assert told.lookup("x")["port"] == "7"
