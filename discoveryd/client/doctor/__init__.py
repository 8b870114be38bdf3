"""What `discoveryctl doctor` examines: a module for each subject, which looks and judges apart."""
