"""At home under systemd: sockets passed in, what is told to the service manager, its watchdog."""
