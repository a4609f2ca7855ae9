"""Hold many connections to a port, each idle after an incomplete handshake.

The limit of open files requires several of these processes.
"""

import socket
import sys

port, count, data = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
held = []
for _ in range(count):
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    try:
        connection.sendall(data)
    except ConnectionError:
        pass  # The server has closed it already.
    held.append(connection)
print("held", flush=True)
sys.stdin.read()
