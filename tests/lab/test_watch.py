"""`sluggish watch` beside real ranks that hang, with its times pressed together."""

import json

import pytest

from . import live
from .cluster import Lab
from .watching import LEFT, gpus_work, learn, watching


@pytest.mark.usefixtures("torch_in_lab")
def test_a_hang_is_noticed_and_diagnosed_while_it_lasts(lab: Lab) -> None:
    told = lab.path("login", "/tmp/told.json")
    told.unlink(missing_ok=True)
    with live.running(lab, "odd", 2, LEFT) as job:
        run = ["--job", job.id, "--transport", "ssh", "--exec", "tee /tmp/told.json"]
        with watching(lab, *run) as watched:
            watched.until("watched")
            with gpus_work(lab, LEFT):
                learn(lab, job.id)
            assert not {"quiet", "alert"} & set(watched.kinds)
            job.fault()
            live.wait_quiet(job)
            live.gpus_wait(job, job.culprit)
            alert = watched.until("alert", 45)
            found = watched.until("diagnosis", 60)
            assert watched.code() == 12
    assert {"quiet", "alert"} <= set(watched.kinds)
    assert "log" in alert["signs"]
    verdict = found["diagnosis"]["verdict"]
    assert (verdict["cause"], verdict["culprits"][0]["rank"]) == ("rank_desync", 2)
    document = json.loads(told.read_text())
    assert (document["job"], document["exit_code"]) == (job.id, 12)
    assert document["verdict"]["culprits"][0]["node"] == job.node(2)
    kept = json.loads(lab.exec("login", ["sluggish", "history", "--json"], check=True).stdout)
    for kind in ("alerts", "looks"):
        assert job.id in {one["job"] for one in kept[kind]}
