"""Asks for the name `m` until its standard input ends, without pause; tells what it saw, as JSON.

`asking.py raw` is a client of a few lines on a plain socket, `kept` the project's own client on one
connection that it keeps, `varlinkctl` a process for each question.
"""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

from discoveryd.client import Client

PATH = "/run/discoveryd/io.discoveryd.Models"
METHOD = "io.discoveryd.Models.Resolve"
PARAMETERS = {"name": "m"}
SECONDS = 20.0

answers = 0
ends = 0
"""How often a connection ended where a reply would have begun."""
faults: list[str] = []
"""All that nobody who asks should see."""


def asked() -> Iterator[None]:
    """Go on until the standard input ends; say so once there was an answer."""
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    told = False
    while not ended.is_set():
        yield
        if answers and not told:
            told = True
            print("asking", flush=True)  # noqa: T201 - the test reads it


def raw() -> None:
    """Ask over one connection, until it ends; then over the next."""
    global answers, ends  # noqa: PLW0603 - a program's counts
    frame = json.dumps({"method": METHOD, "parameters": PARAMETERS}).encode() + b"\0"
    connection: socket.socket | None = None
    for _ in asked():
        if connection is None:
            connection = socket.socket(socket.AF_UNIX)
            connection.settimeout(SECONDS)
            connection.connect(PATH)
        reply = b""
        connection.sendall(frame)
        while not reply.endswith(b"\0"):
            received = connection.recv(1 << 16)
            if not received:
                break
            reply += received
        if reply.endswith(b"\0"):
            answers += 1
            if len(json.loads(reply[:-1])["parameters"]["workers"]) != 1:
                faults.append(reply.decode())
        else:
            ends += 1
            connection.close()
            connection = None
            if reply:
                faults.append(f"half a reply: {reply!r}")


def kept() -> None:
    """Ask through the client, which is to make restarts invisible."""
    global answers  # noqa: PLW0603 - a program's counts
    with Client(timeout=SECONDS) as client:
        for _ in asked():
            found = client.resolve("m")
            answers += 1
            if len(found.workers) != 1:
                faults.append(repr(found))


def varlinkctl() -> None:
    """Ask through systemd's tool, with a process and a connection for each question."""
    global answers  # noqa: PLW0603 - a program's counts
    command = ["varlinkctl", "--json=short", "call", PATH, METHOD, json.dumps(PARAMETERS)]
    for _ in asked():
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0 and len(json.loads(done.stdout)["workers"]) == 1:
            answers += 1
        else:
            faults.append(done.stdout + done.stderr)


if __name__ == "__main__":
    try:
        {"raw": raw, "kept": kept, "varlinkctl": varlinkctl}[sys.argv[1]]()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is not to be seen
        faults.append(repr(error))
    print(json.dumps({"answers": answers, "ends": ends, "faults": faults}))  # noqa: T201 - the same
