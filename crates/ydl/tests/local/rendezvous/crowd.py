"""Hold very many connections to a port, each after the beginning of a handshake and then in silence.

A process may have few files, so that a crowd is many of these.
"""

import socket
import sys

port, count, said = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
held = []
for _ in range(count):
    one = socket.create_connection(("127.0.0.1", port), timeout=60)
    try:
        one.sendall(said)
    except ConnectionError:
        pass  # It was sent away already.
    held.append(one)
print("held", flush=True)
sys.stdin.read()
