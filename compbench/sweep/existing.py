"""Find which of many runs exist already, first by the names in the store and then by identities, before an executor starts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from compbench.api.schemas import RunRequest
from compbench.runner.attempt import Outcome
from compbench.runner.processes import Ended
from compbench.store.listing import Listing, glimpse
from compbench.store.records import Store, finished_among
from compbench.sweep.matrix import RunFacts
from compbench.system.errors import CompbenchError
from compbench.system.home import Home


class RequestedRun(NamedTuple):
    """A requested run.

    Attributes:
        request: the request.
        any_device: a run on any class of devices counts as this run.
        elsewhere: the run will have another class of devices than this machine's, so it is there only if `any_device`.
    """

    request: RunRequest
    any_device: bool = False
    elsewhere: bool = False


class Known(NamedTuple):
    """What is known of a requested run: its identity ("" if not needed, or if it cannot run here) and its finished record."""

    identity: str = ""
    outcome: Outcome | None = None


def listing_of(requested: Sequence[RequestedRun]) -> Listing:
    """The names of the records in the store of some requests."""
    return Listing(Store(Home(Path(requested[0].request.home)).records))


def known(requested: Sequence[RequestedRun], listing: Listing, facts: RunFacts, *, every: bool) -> list[Known]:
    """The identity and the finished record of each run, in order.

    Args:
        requested: the requested runs.
        listing: the names in their store.
        facts: the process that computes identities.
        every: compute all identities, and refuse a request that cannot run here.  Otherwise compute only the identities of
            requests whose names are in the store, because other runs do not exist.

    Raises:
        CompbenchError: identities could not be computed; with `every`, also if a request is wrong.
    """
    paths = [listing.of(one.request) for one in requested]
    places = [place for place, own in enumerate(paths) if every or own]
    if not places:
        return [Known() for _ in requested]
    requests = [requested[place].request for place in places]
    elsewhere = [_device_classes(paths[place]) if requested[place].any_device else [] for place in places]
    try:
        found = dict(zip(places, facts.identities(requests, elsewhere=elsewhere, pass_over=not every), strict=True))
    except Ended as end:
        raise CompbenchError(end.reason) from end
    return [_known(one, paths[place], found.get(place, [])) for place, one in enumerate(requested)]


def _known(requested: RequestedRun, paths: Sequence[Path], ways: Sequence[Sequence[str]]) -> Known:
    """The finished record of a run: from this device if there is one, else from another."""
    request = requested.request
    for identities in ways if requested.any_device or not requested.elsewhere else ():
        record = finished_among(paths, identities)
        from_file = bool(record and record.plugin.version == "file")  # only a record of an installed method can be submitted
        if record is not None and (record.curve or not request.curve) and (request.plugins or not from_file):
            path = next(path for path in paths if path.stem == record.name)
            return Known(ways[0][0], Outcome(record, path, reused=True))
    return Known(ways[0][0] if ways else "")


def _device_classes(paths: Sequence[Path]) -> list[str]:
    return sorted({seen.device_class for seen in map(glimpse, paths) if seen is not None})
