"""Prometheus: a file for `file_sd_configs`, a target for each server that can be scraped.

Theory
======

A target is a server, not a card: a base and its adapters have one, and scraping it for each would
count everything twice. The card that was admitted first speaks for it. Servers are scraped whether
they are ready, draining or neither, since that is when their metrics are of use.

The label `model` is there for all metrics of the target. All else is `__meta_discoveryd_*`, which
Prometheus drops unless `relabel_configs` makes labels of it: so no card takes over `job`,
`instance` or the address. A card's own labels are `__meta_discoveryd_label_NAME`, with `_` for what
no name of a label may have.

Servers without an http or https URL are left out, with no word: JSON has no comments.
"""

import json
import re

from discoveryd.client.exporting.served import Address, Served, address
from discoveryd.interface import Worker

_META = "__meta_discoveryd_"
_NOT_IN_LABELS = re.compile(r"[^a-zA-Z0-9_]")


def text(served: Served) -> str:
    """Return the target groups, one for each server, in ASCII."""
    groups: dict[Address, dict[str, list[str] | dict[str, str]]] = {}
    for worker in served.workers:
        place = address(worker.url)
        if place is not None and place not in groups:
            groups[place] = {"targets": [place.authority], "labels": _labels(worker, place)}
    return json.dumps(list(groups.values()), indent=2) + "\n"


def _labels(worker: Worker, place: Address) -> dict[str, str]:
    labels = {"model": worker.model, "__scheme__": place.scheme}
    if place.path:
        labels["__metrics_path__"] = f"{place.path}/metrics"
    meta = {
        "key": worker.key,
        "model": worker.model,
        "namespace": worker.namespace,
        "component": worker.component,
        "endpoint": worker.endpoint,
        "instance": worker.instance,
        "worker_type": worker.worker_type,
        "accepting": "true" if worker.accepting else "false",
    }
    labels |= {f"{_META}{name}": value for name, value in meta.items()}
    for name, value in (worker.labels or {}).items():
        labels.setdefault(f"{_META}label_{_NOT_IN_LABELS.sub('_', name)}", value)
    return labels
