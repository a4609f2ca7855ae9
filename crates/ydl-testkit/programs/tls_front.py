"""TLS before a server that speaks none: tls_front.py CERTIFICATE HOST:PORT. Prints the port it listens on."""

import socket
import ssl
import sys
import threading

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1])
host, port = sys.argv[2].rsplit(":", 1)


def pass_on(source, sink):
    try:
        while True:
            data = source.recv(65536)
            if not data:
                break
            sink.sendall(data)
    except OSError:
        pass


def serve(plain):
    try:
        client = context.wrap_socket(plain, server_side=True)
    except OSError:
        plain.close()
        return
    with client, socket.create_connection((host, int(port))) as server:
        threading.Thread(target=pass_on, args=(client, server), daemon=True).start()
        # An answer ends with its connection.
        pass_on(server, client)


listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
