"""Talking to the job's master from inside of a task.

Over HTTPS and not through the binary: a program's image need not have it, a training loop should not start processes, and
waiting for changes wants a connection that stays. The master may move to another node; then the agent writes its new
address into the file that `YDL_MASTER_FILE` names, which is looked at before every call.
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
from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple
from urllib.parse import quote, urlencode

from .errors import Conflict, Error, KeyMissing, NotInTask, Unreachable

#: What an answer may take that need not be waited for. Less than the 30 s after which the master answers 503 to a question that
#: it may still do: so a 503 that is heard here is one to a question that was not taken.
ANSWER_MAX_S = 20.0
#: How long a master that is away is looked for: it may be started anew on another node meanwhile. The agent knows better
#: when to give up, and ends the program then.
PATIENCE_S = 600.0
#: Between two tries.
_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_CONNECT_MAX_S = 5.0
#: No answer of a master is larger.
_BODY_BYTES_MAX = 80 << 20
#: Statuses of a master that is there and cannot answer now.
_BUSY = (429, 503, 504)


class Answer(NamedTuple):
    """What the master answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body, where it is JSON."""
        try:
            return json.loads(self.body.decode("utf-8"))
        except ValueError:
            raise Unreachable("the job's master has answered something that is no JSON") from None


class Master:
    """The master of the task in which this process runs."""

    def __init__(self) -> None:
        if not os.environ.get("YDL_MASTER"):
            raise NotInTask(
                "this process is not a task of a job, so there is no master to ask",
                "outside of tasks `Run(id).kv` and `Run(id).events()` are the way",
            )
        # A connection belongs to a thread, and to the process that opened it.
        self._mine = threading.local()

    def call(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, object]] = None,
        body: Optional[bytes] = None,
        *,
        wait: float = 0.0,
        repeat: bool = True,
        patience: float = PATIENCE_S,
        answer_max: float = ANSWER_MAX_S,
    ) -> Answer:
        """One request; what is not answered because the master is away is tried again where that does no harm, for so long."""
        target = path + ("?" + urlencode(dict(query), quote_via=quote) if query else "")
        end = time.monotonic() + patience
        tried = 0
        while True:
            sent = False
            try:
                if not repeat:
                    # An old connection may have been closed meanwhile, which shows only when something was sent.
                    self._drop()
                connection = self._connection(min(_CONNECT_MAX_S, answer_max))
                connection.sock.settimeout(answer_max + wait)
                sent = True
                answer = self._ask(connection, method, target, body)
                if answer.status not in _BUSY:
                    return _checked(answer)
                why = _said(answer)[0]
                sent = False
            except (OSError, http.client.HTTPException, ssl.SSLError) as error:
                self._drop()
                why = str(error) or type(error).__name__
            if (sent and not repeat) or time.monotonic() >= end:
                raise Unreachable(f"the job's master does not answer: {why}")
            time.sleep(min(_PAUSES_S[min(tried, len(_PAUSES_S) - 1)], max(0.0, end - time.monotonic())))
            tried += 1

    def _ask(self, connection: http.client.HTTPConnection, method: str, target: str, body: Optional[bytes]) -> Answer:
        headers = {"authorization": f"Bearer {_token()}", "content-length": str(len(body or b""))}
        connection.request(method, target, body=body or b"", headers=headers)
        response = connection.getresponse()
        content = response.read(_BODY_BYTES_MAX + 1)
        if len(content) > _BODY_BYTES_MAX:
            raise http.client.HTTPException("an answer is too large")
        if response.will_close:
            self._drop()
        named = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, named, content)

    def _connection(self, connect_max: float) -> http.client.HTTPConnection:
        address = _address()
        held: Optional[Tuple[int, str, http.client.HTTPConnection]] = getattr(self._mine, "held", None)
        if held is not None and held[:2] == (os.getpid(), address) and held[2].sock is not None:
            return held[2]
        self._drop()
        host, _, port = address.rpartition(":")
        try:
            number = int(port)
        except ValueError:
            number = 0
        if not host or not 0 < number < 1 << 16:
            # The file is looked at again: it may be written just now.
            raise OSError(f"`{address}` is no address of a master")
        connection = http.client.HTTPConnection(host.strip("[]"), number)
        plain = socket.create_connection((host.strip("[]"), number), timeout=connect_max)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sock = _trusted(plain)
        except BaseException:
            plain.close()
            raise
        self._mine.held = (os.getpid(), address, connection)
        return connection

    def _drop(self) -> None:
        held = getattr(self._mine, "held", None)
        self._mine.held = None
        # A connection that was open when the process forked is the parent's to end.
        if held is not None and held[0] == os.getpid():
            held[2].close()


def _address() -> str:
    """Where the master is now."""
    file = os.environ.get("YDL_MASTER_FILE")
    address = ""
    if file:
        try:
            address = Path(file).read_text(encoding="utf-8").strip()
        except OSError:
            pass
    address = address or os.environ.get("YDL_MASTER", "")
    return address[len("https://"):] if address.startswith("https://") else address


def _trusted(plain: socket.socket) -> ssl.SSLSocket:
    """TLS with the one certificate that is to be trusted: it is compared before a secret is sent, and nothing else about
    it matters."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    expected = ssl.PEM_cert_to_DER_cert(_file("YDL_CERTIFICATE_FILE").strip())
    secure = context.wrap_socket(plain)
    if secure.getpeercert(binary_form=True) != expected:
        secure.close()
        # The master has moved, and another job's has its port: where ours is now comes to be known.
        raise ssl.SSLError(1, "whoever listens at the master's address has another certificate than the job's master")
    return secure


def _token() -> str:
    return _file("YDL_TOKEN_FILE").strip()


def _file(name: str) -> str:
    path = os.environ.get(name)
    if not path:
        raise NotInTask(f"`YDL_MASTER` is set and `{name}` is not")
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise Error(f"cannot read `{path}`, which `{name}` names: {error}") from None


def _said(answer: Answer) -> Tuple[str, Optional[str]]:
    try:
        told: Dict[str, Any] = json.loads(answer.body.decode("utf-8"))
        return str(told["error"]), told.get("hint")
    except (ValueError, KeyError, TypeError):
        return f"status {answer.status}", None


def _checked(answer: Answer) -> Answer:
    if answer.status < 400:
        return answer
    message, hint = _said(answer)
    if answer.status == 404:
        raise KeyMissing(message, hint)
    if answer.status in (409, 412):
        raise Conflict(message, hint)
    raise Error(message, hint)
