"""One optional file, variables over it; what is wrong is told with file and key in one line."""

import os
from pathlib import Path

import pytest

from sluggish import config
from sluggish.config import Config, ConfigError, load


def test_without_a_file_every_value_is_the_default() -> None:
    found = load({"HOME": "/none"})
    assert found.config == Config()
    assert set(found.origins.values()) == {"default"}


def test_variables_win_over_the_file_and_each_origin_is_told(tmp_path: Path) -> None:
    path = tmp_path / "sluggish/config.yaml"
    path.parent.mkdir()
    path.write_text("window_s: 3\nssh: {user: probe, workers: 8}\ncloud: true\n"
                    "log_patterns: [/l/%j.log]\n")  # fmt: skip
    env = {"XDG_CONFIG_HOME": str(tmp_path), "SLUGGISH_SSH_WORKERS": "16", "SLUGGISH_STATE": "/s",
           "SLUGGISH_SUDO": "true"}  # fmt: skip
    found = load(env)
    told = found.config
    assert (told.window_s, told.ssh.user, told.ssh.workers, told.state.dir) == (
        3,
        "probe",
        16,
        "/s",
    )
    assert (told.cloud, told.sudo, told.log_patterns) == (True, True, ("/l/%j.log",))
    assert found.origins["window_s"] == str(path)
    assert found.origins["ssh.workers"] == "SLUGGISH_SSH_WORKERS"
    assert found.origins["state.dir"] == "SLUGGISH_STATE"
    assert found.origins["probe_s"] == "default"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("windows_s: 3", "unknown key windows_s; the nearest key is window_s"),
        ("ssh: {usr: a}", "unknown key ssh.usr; the nearest key is ssh.user"),
        ("window_s: soon", "window_s: Expected `float`"),
        ("ssh: {workers: true}", "ssh.workers: Expected `int`"),
        ("ssh: fast", "ssh: expected keys with values"),
        ("transport: telnet", "transport: Invalid enum value 'telnet': write one of auto, ssh, "),
        ("probe_s: 0", "probe_s: expected a number above 0"),
        ("probe_s: .nan", "probe_s: expected a number above 0"),
        ("reason_template: '{rule}; x'", "reason_template: letters"),
        ("openssh_command: ssh host", "openssh_command: expected {node}"),
        ("webhook: file:///etc/passwd", "webhook: expected an http"),
        ("log_patterns: [/l/%x.log]", "log_patterns: expected the job's number (%j) in '/l/%x"),
        ("state: {dir: here}", "state.dir: expected an absolute path"),
        ("- a", "expected keys with values"),
        ("a: [", "not readable as YAML"),
        ("a: !!python/object/apply:os.system [id]", "not readable as YAML"),
    ],
)
def test_what_is_wrong_is_one_line_with_file_and_key(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load({"SLUGGISH_CONFIG": str(path)})
    assert str(caught.value).startswith(f"{path}: ")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_named_file_has_to_be_there_and_a_bad_variable_is_named() -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load({"SLUGGISH_CONFIG": "/none/c.yaml"})
    with pytest.raises(ConfigError, match="SLUGGISH_WINDOW_S: window_s: Expected"):
        load({"SLUGGISH_WINDOW_S": "soon"})


def test_a_file_on_storage_that_hangs_is_passed_over_aloud(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "READ_S", 0.2)
    path = tmp_path / "sluggish/config.yaml"
    path.parent.mkdir()
    os.mkfifo(path)  # nobody writes: whoever opens it waits
    assert load({"XDG_CONFIG_HOME": str(tmp_path)}).config == Config()
    assert f"{path}: no answer in 0 s: passed over" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="no answer in"):
        load({"SLUGGISH_CONFIG": str(path)})


def test_a_file_that_may_not_be_read_or_is_too_large_is_no_default(tmp_path: Path) -> None:
    path = tmp_path / "sluggish/config.yaml"
    path.mkdir(parents=True)
    with pytest.raises(ConfigError, match="Is a directory"):
        load({"XDG_CONFIG_HOME": str(tmp_path)})
    path.rmdir()
    path.write_text("#" * (config.MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        load({"XDG_CONFIG_HOME": str(tmp_path)})


def test_the_command_line_shows_values_and_origins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from sluggish.cli.config import run

    monkeypatch.setenv("SLUGGISH_CONFIG", "/dev/null")
    monkeypatch.setenv("SLUGGISH_PROBE_S", "2.5")
    assert run() == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "2.5  # SLUGGISH_PROBE_S" in lines["probe_s"]
    assert lines["transport"].endswith("auto  # default")
