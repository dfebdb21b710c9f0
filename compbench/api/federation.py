"""Silos of training data, and the two ways to access them.

`Federation.run` runs a method's function on each silo.  The function can draw the silo's examples; its result must be model
state, and is metered.  `Federation.pooled` gives the examples of all silos at once.  That is the centralised reference, and the
record says so.

The result of a function must have the names and shapes that were fixed before any data was seen, and finite numbers.  It must not
contain a training example of the silo bit for bit, and no example may stay in memory after the function.  This catches mistakes
and crude leaks; it does not stop a method from hiding data in its weights.

Data sent to a silo is metered too.  A function gets other parties' results through `send` or `gather`; a function that carries
tensors in its closure or its arguments is refused (`compbench.api.closures`).  Each party itself makes what all parties know
beforehand, such as untrained weights (`compbench.flow.silos.Recipe`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from compbench.api.closures import refuse_tensors
from compbench.api.context import Batch, Context, Silo, Steps, generator_of
from compbench.system import profiling
from compbench.system.errors import CompbenchError, Refused

if TYPE_CHECKING:
    import torch
    from torch import Generator, Tensor


ModelState = Mapping[str, "Tensor"]
"""What may leave or enter a silo: named tensors; scalars are tensors without dimensions."""

Work = Callable[["LentSilo", dict[str, "Tensor"], Context], ModelState]
"""(silo, state that was sent to it, context) -> model state."""

NUM_WATCHED = 64
"""Number of training examples of each silo that are searched for in results."""

LABEL_DRAWS = 4096
"""Number of labels drawn from a silo that does not list its own."""


@dataclass
class Account:
    """What one silo sent, received and computed; a transfer is one state to one party."""

    name: str
    size: int
    transfers_out: int = 0
    transfers_in: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    rounds: int = 0
    steps: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0


class SiloMemory:
    """State that every silo keeps from one `Federation.run` of a fit to the next, initially zero; it is neither sent nor metered.

    Args:
        like: names and shapes of this state, the same for all silos.
    """

    def __init__(self, like: ModelState) -> None:
        self.like = dict(like)
        self._kept: dict[int, dict[str, Tensor]] = {}

    def of(self, number: int) -> dict[str, Tensor]:
        """The state that silo `number` keeps."""
        import torch

        return self._kept.get(number) or {name: torch.zeros_like(value) for name, value in self.like.items()}

    def take(self, number: int, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """Keep the silo's own part of a function's result, and return the rest, which is sent."""
        self._kept[number] = {name: state[name] for name in self.like}
        return {name: value for name, value in state.items() if name not in self.like}


class Federation:
    """The silos of a problem, the transfers between them, and whether their data was pooled."""

    def __init__(self, silos: Sequence[Silo]) -> None:
        if not silos:
            raise CompbenchError("a problem needs at least one silo.")
        empty = [silo.name for silo in silos if silo.size < 1]
        if empty:
            raise CompbenchError(f"silo '{empty[0]}' is empty: each silo needs at least one example.")
        names = [silo.name for silo in silos]
        if len(set(names)) != len(names):
            raise CompbenchError(f"silos need distinct names, got {', '.join(names)}.")
        self._silos = tuple(silos)
        self.accounts = [Account(silo.name, silo.size) for silo in silos]
        self.was_pooled = False
        self._last: list[dict[str, Tensor]] = []

    def __len__(self) -> int:
        return len(self._silos)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of training examples in each silo."""
        return tuple(silo.size for silo in self._silos)

    def pooled(self) -> Silo:
        """All training data as one silo.  With several silos this is the centralised reference, and the record says so."""
        self.was_pooled = len(self._silos) > 1
        return self._silos[0] if len(self._silos) == 1 else _Pool(self._silos)

    def unmetered(self) -> Federation:
        """The same silos with separate accounts, for probes, whose transfers do not count for the method."""
        return Federation(self._silos)

    def ledger(self) -> dict[str, object]:
        """A fit's use of the silos as JSON, for a fit that is kept and reused: whether it pooled them, and the accounts."""
        return {"pooled": self.was_pooled, "accounts": [asdict(account) for account in self.accounts]}

    def restore(self, ledger: Mapping[str, Any]) -> None:
        """Take over the ledger of a fit that was made in another run.

        Raises:
            CompbenchError: the ledger belongs to other silos, lacks an entry, or says that the fit saw none of several silos.
        """
        try:
            pooled, accounts = {True: True, False: False}[ledger["pooled"]], [Account(**entry) for entry in ledger["accounts"]]
        except (KeyError, TypeError) as error:
            raise CompbenchError("a kept fit does not say whether it pooled the silos; it must be fitted again.") from error
        if [(account.name, account.size) for account in accounts] != [(own.name, own.size) for own in self.accounts]:
            raise CompbenchError("a kept fit belongs to other silos; it must be fitted again.")
        if len(self) > 1 and not pooled and not any(account.rounds for account in accounts):
            raise CompbenchError("a kept fit says that it saw no silo; it must be fitted again.")
        self.was_pooled, self.accounts = pooled, accounts

    def run(
        self,
        work: Work,
        ctx: Context,
        *,
        like: ModelState,
        stage: str,
        send: ModelState | None = None,
        gather: bool = False,
        recipients: int = 1,
        steps: Steps | None = None,
        devices: Sequence[torch.device] = (),
        memory: SiloMemory | None = None,
    ) -> list[dict[str, Tensor]]:
        """Run a function on every silo and return its results.

        Silos run one after another on the context's device, or side by side on `devices`, with the same result: each has its own
        generator, and the function must draw from no other.  A silo that had finished before a run was interrupted is not run
        again when the run resumes.

        Args:
            work: (silo, received, context) -> model state; the silo is closed when it returns.  It carries no tensors.
            ctx: the stage's context; the function gets one with its own generator, checkpoints and progress.
            like: names and shapes of the result, from a model that has seen no data.
            stage: name of this step of the method, unique within its fit; checkpoints are kept under it.
            send: model state that each silo receives beforehand, one transfer to each.
            gather: whether each silo also receives what every other silo returned from the last run, n - 1 transfers.  Silo k's
                state comes as "k.name"; the silo's own state is included and costs nothing.
            recipients: how many parties each result is sent to: 1 for a server, n - 1 for an all-gather.
            steps: counts the steps of all silos.
            devices: devices on which silos run side by side.
            memory: the silos' memory in this fit.  The function receives the state that its silo keeps, and returns it under
                separate names.

        Returns:
            one state per silo, in order, on the context's device.

        Raises:
            Refused: the function carries tensors, returned anything but model state, or kept training data.
            CompbenchError: a state is not finite, or there is nothing to gather.
        """
        import torch

        refuse_tensors(work)
        if gather and not self._last:
            raise CompbenchError("there is nothing to gather: no function has run on the silos before.")
        seed = int(torch.randint(2**62, (), generator=ctx.generator))  # drawn even if every silo has finished
        sent = {name: value.detach() for name, value in (send or {}).items()}
        gathered = {f"{k}.{name}": value for k, state in enumerate(self._last) for name, value in state.items() if gather}
        received = {**sent, **gathered}
        places = list(devices) or [ctx.device]
        memory = memory or SiloMemory({})
        shared = sorted(memory.like.keys() & {*like, *received})
        if shared:
            raise CompbenchError(f"'{shared[0]}' is both kept by the silos and sent; use another name for what a silo keeps.")
        like = {**like, **memory.like}
        own = [_context(ctx, stage, silo, seed, places[k % len(places)], steps) for k, silo in enumerate(self._silos)]
        jobs = [_Job(k, silo, work, own[k], {**received, **memory.of(k)}, like, steps) for k, silo in enumerate(self._silos)]
        if len(places) == 1:
            results = [job.run() for job in jobs]
        else:
            with ThreadPoolExecutor(len(places)) as pool:
                lanes = [pool.submit(lambda own: [job.run() for job in own], jobs[k :: len(places)]) for k in range(len(places))]
                done = [lane.result() for lane in lanes]
            results = [done[index % len(places)][index // len(places)] for index in range(len(jobs))]
        results = [replace(result, state=memory.take(index, result.state)) for index, result in enumerate(results)]
        for index, (account, result) in enumerate(zip(self.accounts, results, strict=True)):
            peers = [state for k, state in enumerate(self._last) if gather and k != index]
            account.rounds += 1
            account.steps += result.steps
            account.seconds += result.seconds
            account.cpu_seconds += result.cpu_seconds
            account.transfers_in += bool(sent) + len(peers)
            account.bytes_in += num_bytes(sent) + sum(map(num_bytes, peers))
            account.transfers_out += recipients
            account.bytes_out += recipients * num_bytes(result.state)
        self._last = [result.state for result in results]
        return [{name: value.to(ctx.device, copy=True) for name, value in state.items()} for state in self._last]


class _WeakReference(Protocol):
    """A weak reference that says whether a storage is still alive."""

    def expired(self) -> bool: ...


class LentSilo:
    """A silo as a function that runs there sees it; it is closed afterwards.  `number` is its position among the silos."""

    def __init__(self, silo: Silo, device: torch.device, *, number: int = 0) -> None:
        self.name, self.size, self.number = silo.name, silo.size, number
        self._silo: Silo | None = silo
        self._device = device
        self._watched: list[Tensor] = []
        self._lent: list[_WeakReference] = []

    def batch(self, size: int, generator: Generator) -> Batch:
        """Draw examples with replacement.  Raises Refused once the function has returned."""
        from torch.multiprocessing.reductions import StorageWeakRef

        if self._silo is None:
            raise Refused(f"a method asked silo '{self.name}' for data outside the function that runs there.")
        batch = Batch(*(part.to(self._device) for part in self._silo.batch(size, generator)))
        missing = NUM_WATCHED - sum(map(len, self._watched))
        if missing > 0:
            self._watched.append(batch.x1[:missing].detach().flatten(1).clone())
        self._lent.append(StorageWeakRef(batch.x1.untyped_storage()))  # type: ignore[no-untyped-call]
        if len(self._lent) > 256:
            self._lent = [reference for reference in self._lent if not reference.expired()]
        return batch

    def labels(self) -> Tensor:
        """Conditions (N, F) of the silo's examples, or of `LABEL_DRAWS` random examples if the silo does not list them."""
        import torch

        assert self._silo is not None
        listed = getattr(self._silo, "condition", None)
        return self._silo.batch(LABEL_DRAWS, torch.Generator().manual_seed(0)).condition if listed is None else listed

    def close(self, state: ModelState) -> None:
        """End the function's access.  Raises Refused if an example is in `state`, or still in memory."""
        import torch

        self._silo = None
        watched = torch.cat(self._watched).cpu() if self._watched else None
        for name, value in state.items():
            if watched is not None and _contains(value, watched):
                raise Refused(f"a method returned raw data from silo '{self.name}': '{name}' contains a training example.")
        if any(not reference.expired() for reference in self._lent):
            gc.collect()
        if any(not reference.expired() for reference in self._lent):
            raise Refused(f"a method kept raw data of silo '{self.name}' beyond the function that ran there.")
        self._lent, self._watched = [], []


@dataclass
class _Result:
    state: dict[str, Tensor]
    steps: int
    seconds: float
    cpu_seconds: float


@dataclass
class _Job:
    """One silo's share of a `Federation.run`."""

    number: int
    silo: Silo
    work: Work
    ctx: Context
    received: dict[str, Tensor]
    like: ModelState
    steps: Steps | None
    _count: int = field(default=0, init=False)

    def run(self) -> _Result:
        finished = self.ctx.checkpoints.part("done")
        found = finished.load()
        if found is not None:
            state, facts = found
            if self.steps:
                self.steps.add(int(facts["steps"]))
            state = {name: state[name] for name in self.like}  # files sort their names
            return _Result(state, int(facts["steps"]), float(facts["seconds"]), float(facts["cpu_seconds"]))
        progress = self.ctx.progress

        def counted(done: int, total: int) -> None:
            self._count = max(self._count, done)
            progress(done, total)

        lent = LentSilo(self.silo, self.ctx.device, number=self.number)
        received = {name: value.to(self.ctx.device, copy=True) for name, value in self.received.items()}
        with profiling.timed(self.ctx.device) as clock:
            returned = self.work(lent, received, replace(self.ctx, progress=counted))
        state = checked(returned, self.like, self.silo.name)
        del returned
        lent.close(state)
        facts = {"steps": self._count, "seconds": clock.wall[0], "cpu_seconds": clock.cpu[0]}
        finished.save(state, facts)
        return _Result(state, self._count, clock.wall[0], clock.cpu[0])


def checked(returned: object, like: ModelState, silo: str) -> dict[str, Tensor]:
    """The result of a function on a silo, detached, if it is model state.

    Args:
        returned: what the function returned.
        like: the names and shapes it must have.
        silo: name of the silo, for messages.

    Raises:
        Refused: the result is not a mapping of names to tensors, or has other names or shapes than `like`.
        CompbenchError: a number is not finite.
    """
    import torch

    if not isinstance(returned, Mapping):
        raise Refused(f"a method returned a {type(returned).__name__} from silo '{silo}'; return named tensors (model state).")
    odd = sorted(set(returned) ^ set(like), key=str)
    if odd:
        raise Refused(f"a method returned other names from silo '{silo}' than it announced: only one of the two has '{odd[0]}'.")
    state = {}
    for name in like:
        value = returned[name]
        tensor = value if isinstance(value, torch.Tensor) else torch.as_tensor(value)
        if tensor.shape != like[name].shape:
            raise Refused(
                f"a method returned '{name}' from silo '{silo}' as {tuple(tensor.shape)}, announced as "
                f"{tuple(like[name].shape)}: only model state may leave a silo."
            )
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CompbenchError(f"the result of silo '{silo}' is not finite in '{name}'; lower budget.learning_rate.")
        state[name] = tensor.detach().clone()
    return state


def num_bytes(state: ModelState) -> int:
    """Bytes of a state's tensors as they are sent."""
    return sum(value.numel() * value.element_size() for value in state.values())


def _contains(value: Tensor, rows: Tensor) -> bool:
    """Whether a tensor contains one of the rows (R, D) bit for bit, if its last dimensions make rows of D numbers."""
    import torch

    size = rows.shape[1]
    if value.numel() < size or value.numel() % size or not value.is_floating_point():
        return False
    candidates = value.detach().cpu().float().reshape(-1, size)
    candidates = candidates[torch.isin(candidates[:, 0], rows[:, 0]) & candidates.any(1)]
    return any(bool((rows == candidate).all(1).any()) for candidate in candidates)


def _context(ctx: Context, stage: str, silo: Silo, seed: int, device: torch.device, steps: Steps | None) -> Context:
    """The silo's own context: device, generator, checkpoints and progress."""

    return replace(
        ctx,
        device=device,
        generator=generator_of(f"{seed} {stage} {silo.name}"),
        checkpoints=ctx.checkpoints.part(f"{stage}-{silo.name}"),
        progress=steps.part() if steps else ctx.progress,
    )


class _Pool:
    """Several silos as one: each example comes from a silo drawn in proportion to its size."""

    name = "pooled"

    def __init__(self, silos: Sequence[Silo]) -> None:
        self._silos = silos
        self.size = sum(silo.size for silo in silos)

    def batch(self, size: int, generator: Generator) -> Batch:
        import torch

        shares = torch.tensor([float(silo.size) for silo in self._silos])
        owner = torch.multinomial(shares, size, replacement=True, generator=generator)
        counts = torch.bincount(owner, minlength=len(self._silos)).tolist()
        parts = [silo.batch(n, generator) for silo, n in zip(self._silos, counts, strict=True) if n]
        return Batch(torch.cat([part.x1 for part in parts]), torch.cat([part.condition for part in parts]))
