"""Permission: who may claim what on a shared host."""
