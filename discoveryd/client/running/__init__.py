"""Running a worker: its command, whether it answers, and its card for as long as it lives."""
