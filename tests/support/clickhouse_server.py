"""The engine of ClickHouse (chdb) behind HTTP, in a process of its own: as much of its interface as a client needs.

`python clickhouse_server.py FOLDER PORT` prints its port; 0 is any. `GET /cut` has the next insert done, not answered,
as if the line broke.
"""

from __future__ import annotations

import base64
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

USER, PASSWORD = "ann", "s3cret/ä"

SETTINGS = ("insert_deduplicate", "insert_deduplication_token")


class ClickHouseHandler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    engine: Any
    lock = threading.Lock()
    cut = False

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        ClickHouseHandler.cut = self.path == "/cut"
        self._answer(200, b"")

    def do_POST(self) -> None:
        given = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query, True).items()}
        body = self._body()
        if self.headers.get("Content-Type", "").startswith("multipart/form-data"):
            given |= self._fields(body)
            body = b""
        settings = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers["Authorization"] != f"Basic {settings}":
            self._answer(403, f"Code: 516. {USER}: Authentication failed. (AUTHENTICATION_FAILED)".encode(), 516)
            return
        try:
            with self.lock:
                result = self._run(given, body)
        except Exception as error:  # noqa: BLE001 - whatever the engine says is the answer
            text = str(error)
            self._answer(500, text.encode(), int((re.findall(r"Code: (\d+)", text) or ["1"])[0]))
            return
        if ClickHouseHandler.cut and body.startswith(b"INSERT"):
            ClickHouseHandler.cut, self.close_connection = False, True
            return
        self._answer(200, result)

    def _run(self, given: dict[str, str], body: bytes) -> bytes:
        """Do what is asked; what the engine gives out."""
        if "database" in given:
            self.engine.query(f"USE `{given['database']}`")
        params = {name.removeprefix("param_"): value for name, value in given.items() if name.startswith("param_")}
        head, native, rows = body.partition(b" FORMAT Native\n")
        if native and head.startswith(b"INSERT"):
            return self._insert(head.decode(), given, rows)
        return self.engine.query(given.get("query", "") + body.decode(), "TabSeparated", params=params).bytes()

    def _insert(self, head: str, given: dict[str, str], rows: bytes) -> bytes:
        """Insert rows, with the settings that came with them."""
        named = ", ".join(f"{name} = '{given[name]}'" for name in SETTINGS if name in given)
        with tempfile.NamedTemporaryFile(suffix=".native") as file:
            file.write(rows)
            file.flush()
            self.engine.query(f"{head} FROM INFILE '{file.name}' SETTINGS {named} FORMAT Native")
        return b""

    def _body(self) -> bytes:
        """Read the body and decompress it."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            body = b"".join(parts)
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "lz4":
            import lz4.frame

            body = lz4.frame.decompress(body)
        return body

    def _fields(self, body: bytes) -> dict[str, str]:
        """Parse the fields of a form."""
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        form = BytesParser(policy=HTTP).parsebytes(head + body)
        return {
            part.get_param("name", header="Content-Disposition"): part.get_payload(decode=True).decode()
            for part in form.iter_parts()
        }

    def _answer(self, status: int, body: bytes, code: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-ClickHouse-Summary", "{}")
        if code is not None:
            self.send_header("X-ClickHouse-Exception-Code", str(code))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serve_clickhouse(folder: Path, port: int = 0) -> Iterator[int]:
    """Run such a process until the end of the block; yields its port, a free one unless given."""
    command = [sys.executable, __file__, str(folder), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def main() -> None:
    """Serve until killed."""
    import chdb

    ClickHouseHandler.engine = chdb.connect(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), ClickHouseHandler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
