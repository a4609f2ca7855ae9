"""Join the job's rendezvous store with plain sockets, which can also send invalid messages."""

import os
import pathlib
import socket
import struct
import sys
import time

SET, GET, ADD, WAIT = b"\x01", b"\x03", b"\x04", b"\x06"
HELLO = b"\x00" + struct.pack("<I", 0x3C85F7CE)


def text(value):
    return struct.pack("<Q", len(value)) + value


def connect():
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    # Without a timeout: the test limits the time of the job.
    return socket.create_connection(address)


class Store:
    def __init__(self):
        self.socket = connect()
        self.socket.sendall(HELLO)

    def read(self, length):
        whole = b""
        while len(whole) < length:
            piece = self.socket.recv(length - len(whole))
            if not piece:
                sys.exit("the store closed the connection")
            whole += piece
        return whole

    def set(self, key, value):
        self.socket.sendall(SET + text(key) + text(value))

    def add(self, key, amount):
        self.socket.sendall(ADD + text(key) + struct.pack("<q", amount))
        return struct.unpack("<q", self.read(8))[0]

    def get(self, key):
        self.socket.sendall(WAIT + struct.pack("<Q", 1) + text(key))
        assert self.read(1) == b"\x00"
        self.socket.sendall(GET + text(key))
        return self.read(struct.unpack("<Q", self.read(8))[0])


def misbehave():
    """Sends invalid messages, each on its own connection, and leaves an incomplete one."""
    for message in b"\xee\xee\xee\xee\xee", HELLO + SET + struct.pack("<Q", 1 << 32), HELLO + b"\x77":
        broken = connect()
        broken.sendall(message)
        assert broken.recv(1) == b"", "it got a response"
    incomplete = connect()
    incomplete.sendall(HELLO[:3])
    return incomplete


def main():
    dir = pathlib.Path(sys.argv[1])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = Store()
    store.set(b"at/%d" % rank, b"rank %d" % rank)
    assert [store.get(b"at/%d" % peer) for peer in range(world)] == [b"rank %d" % peer for peer in range(world)]
    incomplete = misbehave() if rank == 1 else None
    partial = dir / f"ports.{rank}.part"
    partial.write_text(os.environ["MASTER_PORT"] + " " + os.environ["YDL_MASTER"].rpartition(":")[2])
    partial.rename(dir / f"ports.{rank}")
    if rank == 0:
        while not (dir / "go").exists():
            time.sleep(0.02)
        store.set(b"go", b"value")
    value = store.get(b"go").decode()
    store = Store()
    for _ in range(20):
        store.add(b"steps", 1)
    store.add(b"done", 1)
    while store.add(b"done", 0) < world:
        time.sleep(0.02)
    print(f"rank {rank} of {world} read {value} and counts {store.add(b'steps', 0)} steps", flush=True)
    del incomplete


main()
