"""An address that `sluggish watch --webhook` posts to, as it may be found at a site.

    python3 hook.py PORT LOG

/ok takes it, /fails says 500, /moved sends to /ok, /hangs never answers. LOG gets a line of JSON a
request: method, path as it was asked (a whole address: somebody uses us as a proxy), the document.
"""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._log(json.loads(body))
        path = self.path.partition("?")[0].rpartition("/")[2]
        if path == "hangs":
            time.sleep(600)
        self.send_response({"ok": 200, "moved": 302, "fails": 500}.get(path, 404))
        if path == "moved":
            self.send_header("Location", "/ok")
        self.end_headers()

    def do_GET(self) -> None:
        self._log(None)
        self.send_response(200)
        self.end_headers()

    def _log(self, document: object) -> None:
        told = json.dumps({"method": self.command, "path": self.path, "document": document})
        with Path(sys.argv[2]).open("a") as log:
            log.write(told + "\n")

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("", int(sys.argv[1])), Hook).serve_forever()
