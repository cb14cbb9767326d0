"""Operations with their bytes and FLOPs, and a lower bound of their time on a machine."""

from dataclasses import dataclass, replace

GROUPS = (
    "attention",
    "FFN",
    "merge",
    "merge backward",
    "casts",
    "elementwise",
    "gradient sums",
    "loss",
    "optimizer",
)
"""`gradient sums` add a micro-batch's gradients to those before it; `attention` includes its projections."""


@dataclass(frozen=True)
class Operation:
    """One call: its group, FLOPs, and the bytes of every storage that it reads and writes."""

    name: str
    group: str
    phase: str
    """`forward` or `backward`, of a micro-batch; `copies` or `optimizer`, once a step."""
    flops: float
    reads: dict[int, int]
    """Bytes by storage."""
    writes: dict[int, int]

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return sum(self.reads.values()) + sum(self.writes.values())

    @property
    def fuses(self) -> bool:
        """Whether a compiler makes one kernel of it and its neighbours."""
        compiled = self.group in ("casts", "elementwise", "gradient sums", "loss")
        return compiled and self.phase != "copies" and not self.flops


@dataclass(frozen=True)
class Machine:
    """What the bound depends on: bytes a second (read plus written) and matrix FLOPs a second."""

    bandwidth: float
    flops: float

    def seconds(self, operation: Operation) -> float:
        """The lower bound of an operation."""
        return max(operation.moved / self.bandwidth, operation.flops / self.flops)


def fused(operations: list[Operation]) -> list[Operation]:
    """The same after a compiler: each run of operations that fuse moves only what enters and leaves it."""
    last_use = {storage: i for i, op in enumerate(operations) for storage in op.reads}
    kernels: list[Operation] = []
    first = 0
    while first < len(operations):
        end = first + 1
        while end < len(operations) and _same_kernel(operations[first], operations[end]):
            end += 1
        kernels.append(_kernel(operations[first:end], end, last_use))
        first = end
    return kernels


def _same_kernel(a: Operation, b: Operation) -> bool:
    return a.fuses and b.fuses and (a.phase, a.group == "loss") == (b.phase, b.group == "loss")


def _kernel(run: list[Operation], end: int, last_use: dict[int, int]) -> Operation:
    if len(run) == 1:
        return run[0]
    made: set[int] = set()
    reads: dict[int, int] = {}
    writes: dict[int, int] = {}
    for operation in run:
        reads |= {s: n for s, n in operation.reads.items() if s not in made}
        made |= operation.writes.keys()
        writes |= operation.writes
    kept = {s: n for s, n in writes.items() if last_use.get(s, 0) >= end or s in reads}
    largest = max(run, key=lambda operation: operation.moved)
    return replace(largest, name="fused", reads=reads, writes=kept)
