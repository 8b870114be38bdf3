"""Imported by each Python that is started with this directory: SIGUSR1 blocks its main thread."""

import signal
import time

signal.signal(signal.SIGUSR1, lambda _number, _frame: time.sleep(3600))
