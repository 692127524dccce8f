"""`sluggish watch --prometheus`: a real Prometheus, fed by an exporter on each node."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from . import cluster, sims
from .cluster import Lab
from .watching import LEFT, STOP, UNTIL_TOLD, gpus_work, learn, sleeping, watching

PROMETHEUS = """
global: {scrape_interval: 1s, scrape_timeout: 900ms}
scrape_configs:
  - job_name: dcgm
    static_configs: [{targets: ['10.77.1.1:9400', '10.77.1.2:9400']}]
"""


@contextmanager
def prometheus(lab: Lab) -> Iterator[str]:
    """A real Prometheus on the login node that scrapes an exporter on both nodes; its address."""
    null = subprocess.DEVNULL
    lab.path("login", "/tmp/prometheus.yml").write_text(PROMETHEUS)
    exporter = ["/usr/bin/python3", "/opt/sluggish/tests/lab/exporter.py", "9400"]
    started = [lab.popen(n, exporter, stdin=null, stdout=null, stderr=null) for n in LEFT]
    argv = ["prometheus", "--config.file=/tmp/prometheus.yml", "--web.listen-address=:9090",
            "--storage.tsdb.path=/tmp/prometheus"]  # fmt: skip
    started.append(lab.popen("login", argv, stdin=null, stdout=null, stderr=null))
    ask = "import urllib.request as u; print(u.urlopen('http://10.77.0.2:9090/api/v1/query?"
    ask += "query=count(DCGM_FI_DEV_GPU_UTIL)').read().decode())"

    def scraped() -> bool:
        return '"16"' in lab.exec("login", ["/usr/bin/python3", "-c", ask]).stdout

    try:
        cluster.wait_for(scraped, 40, "Prometheus does not know the GPUs of both nodes")
        yield "http://10.77.0.2:9090"
    finally:
        for process in started:
            cluster.end(process)


def test_the_metrics_of_a_real_prometheus_are_enough_for_an_alert(lab: Lab) -> None:
    stop, last = lab.path("login", STOP), lab.path(LEFT[1], "/run/node/xid")
    stop.unlink(missing_ok=True)
    last.unlink(missing_ok=True)
    try:
        with (
            prometheus(lab) as url,
            sleeping(lab, UNTIL_TOLD, "--gres=gpu:2") as job,
            watching(lab, "--job", job, "--prometheus", url) as watched,
        ):
            assert watched.until("watched")["says"].endswith("by Prometheus")
            with gpus_work(lab, LEFT):
                learn(lab, job)
            state = {"*.utilization.gpu": "100", "*.power.draw": "195.00"}
            sims.gpus(lab, LEFT[0], {**state, "*.memory.used": "180000"})
            sims.gpu_off_the_bus(lab, LEFT[1], 0)
            last.write_text("79")
            alert = watched.until("alert", 60)
            found = watched.until("diagnosis", 60)["diagnosis"]["verdict"]
            assert watched.code() == 10
        assert (found["cause"], found["culprits"][0]["node"]) == ("gpu_fault", LEFT[1])
        assert any("is not listed any more" in sign or "Xid 79" in sign for sign in alert["signs"])
    finally:
        stop.touch()
        for node in LEFT:
            sims.gpus(lab, node)
            sims.clear_kernel(lab, node)
        last.unlink(missing_ok=True)
