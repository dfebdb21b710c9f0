"""A metric that cannot be had here, and why."""


class MetricUnavailable(Exception):
    """Raised by a metric whose weights or packages are missing; the score then has no value and this reason."""
