"""Stands in for dcgm-exporter on a lab node: its metrics, made of what `nvidia-smi` prints there.

    python3 exporter.py PORT

Names and labels are those of dcgm-exporter's default-counters.csv. /run/node/xid holds the last
Xid of GPU 0; without the file it is 0.
"""

import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

FIELDS = {
    "utilization.gpu": "DCGM_FI_DEV_GPU_UTIL",
    "utilization.memory": "DCGM_FI_DEV_MEM_COPY_UTIL",
    "power.draw": "DCGM_FI_DEV_POWER_USAGE",
    "enforced.power.limit": "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
    "memory.used": "DCGM_FI_DEV_FB_USED",
}
HOST = socket.gethostname()


def page() -> str:
    query = f"--query-gpu=index,{','.join(FIELDS)}"
    argv = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    rows = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    lines: list[str] = []
    for row in rows:
        index, *values = row.split(", ")
        labels = f'gpu="{index}",device="nvidia{index}",Hostname="{HOST}",modelName="B300"'
        told = zip(FIELDS.values(), values, strict=True)
        lines += [f"{name}{{{labels}}} {value}" for name, value in told]
        lines.append(f"DCGM_FI_DEV_XID_ERRORS{{{labels}}} {xid() if index == '0' else 0}")
    return "\n".join(lines) + "\n"


def xid() -> int:
    try:
        with open("/run/node/xid") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = page().encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    HTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
