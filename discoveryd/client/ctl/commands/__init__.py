"""The commands of discoveryctl, by kind. Each module is imported when one of its commands runs."""
