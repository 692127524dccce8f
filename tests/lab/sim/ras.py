"""NCCL's RAS port of one node: answers `status` with the text of a file, and ends with the file."""

import re
import socketserver
import sys
import threading
import time
from pathlib import Path

SETTING = re.compile(r"timeout \d+|set format (text|json)")
REPORT = Path(sys.argv[1])


class Client(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            words = line.decode("utf-8", "replace").lower().split()
            if words[:2] == ["client", "protocol"]:
                self.say("SERVER PROTOCOL 2\n")
            elif SETTING.fullmatch(" ".join(words)):
                self.say("OK\n")
            elif words in (["status"], ["verbose", "status"]):
                self.say(REPORT.read_text())
                return  # the report ends with the connection
            else:
                self.say(f"ERROR: Unknown command {' '.join(words)[:40]}\n")

    def say(self, text: str) -> None:
        self.wfile.write(text.encode())
        self.wfile.flush()


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


server = Server(("127.0.0.1", 28028), Client)
threading.Thread(target=server.serve_forever, daemon=True).start()
while REPORT.exists():
    time.sleep(0.5)
