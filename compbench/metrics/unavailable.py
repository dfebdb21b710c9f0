"""The exception of a metric that cannot be computed on this machine."""


class MetricUnavailable(Exception):
    """Raised by a metric whose weights or packages are missing; the score then has no value and this reason."""
