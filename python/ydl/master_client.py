"""Client of the job's master inside of a task.

It uses HTTPS instead of the binary: images need no binary, a training loop should not start processes, and watches need a
persistent connection. If the master moves to another node, the agent writes its new address to the file in
`YDL_MASTER_FILE`, which is read before every call.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import quote, urlencode

from .errors import Conflict, Error, KeyMissing, NotInTask, Unreachable

#: Timeout of a response without a wait. The master answers 503 after 30 s to a request that it may still execute. With a
#: shorter timeout a 503 always means that the request was not accepted.
RESPONSE_TIMEOUT_S = 20.0
#: Time for retries while the master cannot be reached, since it may restart on another node. The agent ends the program
#: earlier if the master is lost.
RETRY_TIMEOUT_S = 600.0
#: Delays between retries.
_RETRY_DELAYS_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_CONNECT_TIMEOUT_S = 5.0
#: Maximum size of a response.
_MAX_BODY_BYTES = 80 << 20
#: Status codes of a busy master.
_BUSY = (429, 503, 504)


class Response(NamedTuple):
    """Response of the master."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Parses the body as JSON."""
        try:
            return json.loads(self.body.decode("utf-8"))
        except ValueError:
            raise Unreachable("the response of the job's master is not JSON") from None


class TaskEndpoint:
    """Address, certificate and token of the master of this task's job."""

    def __init__(self) -> None:
        if not os.environ.get("YDL_MASTER"):
            raise NotInTask(
                "this process is not a task of a job, so it has no master",
                "use `Run(id).kv` and `Run(id).events()` outside of tasks",
            )

    def address(self) -> str:
        """Returns the current address of the master."""
        return _address()

    def certificate(self) -> str:
        """Returns the certificate of the master."""
        return _file("YDL_CERTIFICATE_FILE")

    def token(self) -> str:
        """Returns the token of this task."""
        return _file("YDL_TOKEN_FILE")

    def unreachable(self) -> None:
        """Is called after a failed request."""


class DirectoryEndpoint(TaskEndpoint):
    """Address, certificate and token of the master of a job in a directory of this machine.

    `refresh` updates the files: the master may have moved.
    """

    def __init__(self, directory: str, refresh: Callable[[], object]) -> None:
        self._directory, self._refresh = directory, refresh
        refresh()

    def address(self) -> str:
        try:
            return str(json.loads(self._read("master.json"))["address"])
        except (ValueError, KeyError, TypeError):
            raise OSError("`master.json` has no address") from None

    def certificate(self) -> str:
        return self._read("certificate.pem")

    def token(self) -> str:
        return self._read("client.token")

    def unreachable(self) -> None:
        self._refresh()

    def _read(self, name: str) -> str:
        return (Path(self._directory) / name).read_text(encoding="utf-8")


class MasterClient:
    """Client of a job's master, by default of this task's job."""

    def __init__(self, endpoint: Optional[TaskEndpoint] = None) -> None:
        self._endpoint = TaskEndpoint() if endpoint is None else endpoint
        # Each thread has its own connection; a forked child opens a new one.
        self._local = threading.local()

    def call(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, object]] = None,
        body: Optional[bytes] = None,
        *,
        wait: float = 0.0,
        repeat: bool = True,
        retry_timeout: float = RETRY_TIMEOUT_S,
        response_timeout: float = RESPONSE_TIMEOUT_S,
    ) -> Response:
        """Sends one request. While the master cannot be reached, retries for `retry_timeout` if `repeat` allows it."""
        target = path + ("?" + urlencode(dict(query), quote_via=quote) if query else "")
        end = time.monotonic() + retry_timeout
        attempts = 0
        while True:
            sent = False
            try:
                if not repeat:
                    # A closed connection is noticed only after sending.
                    self._drop()
                connection = self._connection(min(_CONNECT_TIMEOUT_S, response_timeout))
                connection.sock.settimeout(response_timeout + wait)
                sent = True
                response = self._send(connection, method, target, body)
                if response.status not in _BUSY:
                    return _raise_for_status(response)
                reason = _error_of(response)[0]
                sent = False
            except (OSError, http.client.HTTPException, ssl.SSLError) as error:
                self._drop()
                self._endpoint.unreachable()
                reason = str(error) or type(error).__name__
            if (sent and not repeat) or time.monotonic() >= end:
                raise Unreachable(f"the job's master does not respond: {reason}")
            time.sleep(min(_RETRY_DELAYS_S[min(attempts, len(_RETRY_DELAYS_S) - 1)], max(0.0, end - time.monotonic())))
            attempts += 1

    def _send(self, connection: http.client.HTTPConnection, method: str, target: str, body: Optional[bytes]) -> Response:
        headers = {"authorization": f"Bearer {self._endpoint.token().strip()}", "content-length": str(len(body or b""))}
        connection.request(method, target, body=body or b"", headers=headers)
        raw = connection.getresponse()
        content = raw.read(_MAX_BODY_BYTES + 1)
        if len(content) > _MAX_BODY_BYTES:
            self._drop()
            # A repeated request would get the same response.
            raise Error(
                f"the response of the job's master has more than {_MAX_BODY_BYTES} bytes", "read fewer keys at once"
            )
        if raw.will_close:
            self._drop()
        fields = {name.lower(): value for name, value in raw.getheaders()}
        return Response(raw.status, fields, content)

    def _connection(self, connect_max: float) -> http.client.HTTPConnection:
        address = self._endpoint.address()
        cached: Optional[Tuple[int, str, http.client.HTTPConnection]] = getattr(self._local, "cached", None)
        if cached is not None and cached[:2] == (os.getpid(), address) and cached[2].sock is not None:
            return cached[2]
        self._drop()
        host, _, port = address.rpartition(":")
        try:
            number = int(port)
        except ValueError:
            number = 0
        if not host or not 0 < number < 1 << 16:
            # Retried, since the file may be incomplete.
            raise OSError(f"`{address}` is not the address of a master")
        connection = http.client.HTTPConnection(host.strip("[]"), number)
        plain = socket.create_connection((host.strip("[]"), number), timeout=connect_max)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sock = _tls(plain, self._endpoint)
        except BaseException:
            plain.close()
            raise
        self._local.cached = (os.getpid(), address, connection)
        return connection

    def _drop(self) -> None:
        cached = getattr(self._local, "cached", None)
        self._local.cached = None
        # A connection opened before a fork belongs to the parent.
        if cached is not None and cached[0] == os.getpid():
            cached[2].close()


def _address() -> str:
    """Returns the current address of the master."""
    file = os.environ.get("YDL_MASTER_FILE")
    address = ""
    if file:
        try:
            address = Path(file).read_text(encoding="utf-8").strip()
        except OSError:
            pass
    address = address or os.environ.get("YDL_MASTER", "")
    return address[len("https://"):] if address.startswith("https://") else address


def _tls(plain: socket.socket, endpoint: TaskEndpoint) -> ssl.SSLSocket:
    """Starts TLS and compares the server's certificate with the pinned one before any secret is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    expected = ssl.PEM_cert_to_DER_cert(endpoint.certificate().strip())
    secure = context.wrap_socket(plain)
    if secure.getpeercert(binary_form=True) != expected:
        secure.close()
        # The master has moved, and another job's master has its port. Retried with the new address.
        raise ssl.SSLError(1, "the server at the master's address has another certificate than the job's master")
    return secure


def _file(name: str) -> str:
    path = os.environ.get(name)
    if not path:
        raise NotInTask(f"`YDL_MASTER` is set, but `{name}` is not")
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise Error(f"cannot read `{path}` (`{name}`): {error}") from None


def _error_of(response: Response) -> Tuple[str, Optional[str]]:
    try:
        body: Dict[str, Any] = json.loads(response.body.decode("utf-8"))
        return str(body["error"]), body.get("hint")
    except (ValueError, KeyError, TypeError):
        return f"status {response.status}", None


def _raise_for_status(response: Response) -> Response:
    if response.status < 400:
        return response
    message, hint = _error_of(response)
    if response.status == 404:
        raise KeyMissing(message, hint)
    if response.status in (409, 412):
        raise Conflict(message, hint)
    if response.status == 410:
        raise Unreachable(message, hint)
    raise Error(message, hint)
