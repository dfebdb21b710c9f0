"""What does this machine have?  Files, the home folder, devices, profiling, errors, and what torch lacks on CPUs."""
