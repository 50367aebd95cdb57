"""A stack with real servers and tiny stand-ins for workers and web server, as its own process.

Usage: serve.py DATA_DIR [--worker CODE]; one line of JSON on stdout when ready, until a signal.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from app.local.errors import StackError, StopRequested
from app.local.signals import StopRequest
from app.local.stack import Preparation, Stack
from config.settings import Settings

WEB = """
import http.server, socket, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

server = http.server.HTTPServer(("", 0), Handler, bind_and_activate=False)
server.socket = socket.socket(fileno=int(sys.argv[1]))
server.serve_forever()
"""
# It registers by a file in its working directory, which is the state folder.
WORKER = "import os, time; open(f'registered-{os.getpid()}', 'w').close(); time.sleep(600)"


def no_service(data_dir: Path) -> Preparation:
    """Stands in for the service: nothing to prepare, every queue answers."""

    def registered(_redis_url: str) -> list[dict[str, Any]]:
        files = data_dir.glob("registered-*")
        return [{"name": "query1", "pid": int(file.name.split("-")[1])} for file in files]

    return Preparation(
        check_database=lambda url: None,
        check_redis=lambda url: None,
        migrate=lambda url: None,
        ensure_local_key=lambda url, key_file: None,
        tell_content=lambda url: "nothing",
        live_workers=registered,
        canary=lambda url, queue, timeout_s: True,
    )


def make_stack(
    data_dir: Path, stop_request: StopRequest, worker: str = WORKER, **settings: Any
) -> Stack:
    return Stack(
        Settings(data_dir=data_dir, **settings),
        lambda text: print(text, file=sys.stderr, flush=True),
        stop_request,
        no_service(data_dir),
        lambda _settings, fd: [sys.executable, "-c", WEB, str(fd)],
        lambda _settings: {"query1": [sys.executable, "-c", worker]},
    )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--worker", default=WORKER)
    arguments = parser.parse_args()
    stop_request = StopRequest()
    try:
        with (
            stop_request.listening(),
            make_stack(arguments.data_dir, stop_request, arguments.worker) as stack,
        ):
            print(stack.start().as_json(), flush=True)
            while True:
                stop_request.check()
                time.sleep(0.05)
                stack.watch()
    except StopRequested:
        return 0
    except StackError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
