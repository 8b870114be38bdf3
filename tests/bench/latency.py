"""From a card renamed into place to the first answer that has it: `python -m tests.bench.latency`.

The daemon is otherwise idle. Once a client asks Resolve again and again until the name is known,
once it calls Sync for the file; between two cards the machine gets time to fall asleep. Last comes
what the idle daemon itself takes of a processor.
"""

import json
import sys
import time

from tests.bench import daemons

CARDS = 200
IDLE_SECONDS = 10.0
DEADLINE_SECONDS = 10.0


def until_resolved(daemon: daemons.Daemon, number: int) -> float:
    """Put a card in place; return the seconds until another client's Resolve knows it."""
    frame = daemons.call("Resolve", name=f"acme/model-{number}")
    content = daemons.flat_card(number)
    with daemon.connect() as connection:
        daemons.pause()
        began = time.perf_counter()
        daemon.put(f"{number}.json", content)
        while daemons.ask(connection, frame).startswith(b'{"error"'):
            if time.perf_counter() - began > DEADLINE_SECONDS:
                raise TimeoutError(f"model-{number} is not served")
        return time.perf_counter() - began


def until_synced(daemon: daemons.Daemon, number: int) -> float:
    """Put a card in place; return the seconds until Sync has answered that it is served."""
    content = daemons.flat_card(number)
    frame = daemons.call("Sync", files=[f"{number}.json"])
    with daemon.connect() as connection:
        daemons.pause()
        began = time.perf_counter()
        daemon.put(f"{number}.json", content)
        reply = daemons.ask(connection, frame)
        taken = time.perf_counter() - began
    standing = json.loads(reply[:-1])["parameters"]["verdicts"][0]["standing"]
    if standing != "serving":
        raise RuntimeError(f"Sync returned, and model-{number} is {standing}")
    return taken


def idle_share(daemon: daemons.Daemon, seconds: float = IDLE_SECONDS) -> float:
    """Return which part of one processor the daemon takes while nobody asks for anything."""
    used, began = daemon.cpu_seconds(), time.perf_counter()
    time.sleep(seconds)
    return (daemon.cpu_seconds() - used) / (time.perf_counter() - began)


def main() -> None:
    """Print the table."""
    daemon_core, client_core = daemons.two_cores()
    with (
        daemons.workplace() as place,
        daemons.running(place, core=daemon_core) as daemon,
        daemons.pinned(client_core),
    ):
        numbers = iter(range(2 * CARDS))
        resolved = [until_resolved(daemon, next(numbers)) for _ in range(CARDS)]
        synced = [until_synced(daemon, next(numbers)) for _ in range(CARDS)]
        daemons.say("renamed -> resolvable", resolved)
        daemons.say("renamed -> Sync(file) returned", synced)
        share = idle_share(daemon)
        sys.stdout.write(f"{'idle daemon, of one processor':36} {share * 100:7.2f} %\n")


if __name__ == "__main__":
    main()
