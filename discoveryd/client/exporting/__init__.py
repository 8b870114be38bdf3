"""What is served, in the formats of routers that people run already, and files kept up to date."""
