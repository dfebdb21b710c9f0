"""What has this machine?  Files, the home folder, devices, profiling, errors, and what torch lacks on CPUs."""
