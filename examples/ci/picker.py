#!/usr/bin/env python3
"""The program that is tested here: it picks a worker for a model and prints where it listens."""

import random
import sys

from discoveryd.client import Client, NoSuchModel


def pick(model: str) -> str:
    """Return the url of a worker that serves the model. Raises NoSuchModel."""
    with Client() as client:
        found = client.resolve(model)
    return random.choice([worker.url for worker in found.workers if worker.url])  # noqa: S311 - no secret


def main(model: str) -> int:
    """Print a url, or why there is none."""
    try:
        print(pick(model))  # noqa: T201 - it is what this program is for
    except NoSuchModel as error:
        why = [reason.message for card in error.waiting for reason in card.reasons]
        print(*(why or [str(error)]), sep="\n", file=sys.stderr)  # noqa: T201 - likewise
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
