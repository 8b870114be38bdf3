"""What a worker does: put its card where the daemon looks, hold it, drain it, withdraw it."""
