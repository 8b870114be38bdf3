"""The directories: how files are watched, looked at and read, and what becomes sightings."""
