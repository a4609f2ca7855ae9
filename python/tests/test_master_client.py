"""Client of a master that is unreachable, has moved, or belongs to another job."""

import http.server
import os
import socket
import ssl
import tempfile
import threading
import unittest
from unittest import mock

import ydl
from ydl import master_client

from .harness import TEST_TIMEOUT_S

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


class Masters(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.files = {}
        for name, text in (("YDL_MASTER_FILE", ""), ("YDL_TOKEN_FILE", "token"), ("YDL_CERTIFICATE_FILE", CERTIFICATE)):
            self.files[name] = os.path.join(folder.name, name)
            self.write(name, text)
        patch = mock.patch.dict(os.environ, YDL_MASTER="https://127.0.0.1:1", **self.files)
        patch.start()
        self.addCleanup(patch.stop)

    def write(self, name: str, text: str) -> None:
        with open(self.files[name], "w") as file:
            file.write(text)

    def serve(self) -> str:
        """Starts a master without TLS that responds with the request's authorization. Returns its address."""

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.headers["authorization"].encode()
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_) -> None:
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.addCleanup(server.server_close)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        return f"https://127.0.0.1:{server.server_port}"

    def test_the_retry_timeout_limits_retries(self) -> None:
        with socket.socket() as bound:
            # Bound and not listening: connections are refused.
            bound.bind(("127.0.0.1", 0))
            self.write("YDL_MASTER_FILE", f"https://127.0.0.1:{bound.getsockname()[1]}")
            pauses = []
            with mock.patch.object(master_client.time, "sleep", side_effect=pauses.append):
                with self.assertRaises(ydl.Unreachable):
                    ydl.TaskStore(retry_timeout=0.05, response_timeout=1.0).put("a", "b")
            self.assertLessEqual(max(pauses, default=0.0), 0.05)

    def test_a_moved_master_is_found_at_its_new_address(self) -> None:
        new = self.serve()
        for old in ("", "garbage", "https://host:1e9", "https://127.0.0.1:99999999"):
            self.write("YDL_MASTER_FILE", old or "https://127.0.0.1:1")
            # Between two attempts the agent writes the new address.
            with mock.patch.object(master_client.time, "sleep", side_effect=lambda _: self.write("YDL_MASTER_FILE", new)):
                with mock.patch.object(master_client, "_tls", side_effect=lambda plain, _: plain):
                    response = master_client.MasterClient().call("GET", "/v1/kv/a", retry_timeout=TEST_TIMEOUT_S)
            self.assertEqual(response.body, b"Bearer token")

    def test_another_jobs_master_gets_no_token_and_is_skipped(self) -> None:
        new = self.serve()
        self.write("YDL_MASTER_FILE", new)
        other = mock.Mock()
        other.getpeercert.return_value = b"another"
        with mock.patch.object(master_client.ssl, "SSLContext") as context:
            context.return_value.wrap_socket.return_value = other
            with self.assertRaises(ydl.Unreachable) as raised:
                master_client.MasterClient().call("GET", "/v1/kv/a", retry_timeout=0.0)
        self.assertIn("another certificate", raised.exception.message)
        other.sendall.assert_not_called()
        errors = [ssl.SSLError(1, "another certificate"), None]

        def tls(plain, _):
            error = errors.pop(0)
            if error is not None:
                raise error
            return plain

        with mock.patch.object(master_client, "_tls", side_effect=tls):
            self.assertEqual(master_client.MasterClient().call("GET", "/v1/kv/a", retry_timeout=TEST_TIMEOUT_S).status, 200)

    def test_a_response_that_is_too_large_is_not_requested_again(self) -> None:
        self.write("YDL_MASTER_FILE", self.serve())
        with mock.patch.object(master_client, "_tls", side_effect=lambda plain, _: plain) as tls:
            with mock.patch.object(master_client, "_MAX_BODY_BYTES", 4):
                with self.assertRaises(ydl.Error) as raised:
                    master_client.MasterClient().call("GET", "/v1/kv/a", retry_timeout=0.0)
        self.assertNotIsInstance(raised.exception, ydl.Unreachable)
        self.assertIn("more than 4 bytes", raised.exception.message)
        self.assertEqual(tls.call_count, 1)


if __name__ == "__main__":
    unittest.main()
