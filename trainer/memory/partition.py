"""kept_by_compiler: what a compiled block keeps for its backward pass, which is less than autograd keeps without a compiler."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from .ledger import Entry, Storage, Stretch

SOURCE, SINK = "computed once", "backward pass"
REDUCED = 4  # times smaller than what it is made of: such a result is not computed again
# What keeping a result costs by the partitioner's own measure: its bytes, times DISTANCE for each operation between it and the backward
# pass, FURTHEST of them at most, and times UNWRITTEN where only fused operations read it, so that it need not be written else.
DISTANCE, FURTHEST, UNWRITTEN = 1.1, 100, 2.0


def kept_by_compiler(entries: Sequence[Entry], forward: Stretch, backward: Stretch, decided: bool) -> set[Storage]:
    """What AOTAutograd keeps of a block's forward pass for its backward pass (torch/_functorch/partitioners.py, solve_min_cut).

    `decided`: a checkpoint's policy has decided; of what it keeps, only what nothing reads is freed. Else it is the cheapest set
    from which element-wise operations and reductions give again all that the backward pass reads. Products, attention and what
    those of the backward pass read are not computed again.
    """
    before, after = ([entry for entry in entries if entry.stretch is stretch] for stretch in (forward, backward))
    if not decided:
        before, after = _merged(before, after)
    born = {storage for entry in before for storage in entry.made if storage.stretch is forward}
    after = _used(after)
    needed = born.intersection(storage for entry in after for storage in entry.read)
    return needed if decided or not needed else _least(before, after, needed, born)


def _merged(before: Sequence[Entry], after: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """The operations without repetitions and without conversions to a wider type and back, as autocast makes them."""
    stands: dict[Storage, Storage] = {}  # for what is not made any more: what has the same numbers
    known: dict[tuple[object, ...], Entry] = {}
    widened: dict[Storage, tuple[Storage, torch.dtype]] = {}  # what it was made of, and of which type that is
    found: list[Entry] = []

    def own(entry: Entry) -> Entry:
        read, made = (tuple(stands.get(storage, storage) for storage in group) for group in (entry.read, entry.made))
        return replace(entry, read=read, made=made)

    for entry in map(own, before):
        call = entry.call and tuple(_stood_for(part, stands) for part in entry.call)
        first = known.setdefault(call, entry) if call else entry
        if first is not entry:
            stands.update(zip(entry.made, first.made, strict=True))
            continue
        if entry.converted and len(entry.read) == len(entry.made) == 1:
            (given,), (made,), (old, new) = entry.read, entry.made, entry.converted
            narrow, dtype = widened.get(given, (given, None))
            if dtype == new:
                stands[made] = narrow
                continue
            if old.itemsize < new.itemsize:
                widened[made] = given, old
        found.append(entry)
    return found, [own(entry) for entry in after]


def _stood_for(part: object, stands: Mapping[Storage, Storage]) -> object:
    """A part of a call, by what stands for its storage if it is a tensor."""
    return (stands.get(part[0], part[0]), *part[1:]) if isinstance(part, tuple) else part


def _used(entries: Sequence[Entry]) -> list[Entry]:
    """The operations of a stretch whose results are used, in it or after it."""
    used: set[Storage] = set()
    found: list[Entry] = []
    for entry in reversed(entries):
        if any(storage in used or not storage.freed_by(entries[-1].time) for storage in entry.made):
            used.update(entry.read)
            found.append(entry)
    return found[::-1]


def _least(before: Sequence[Entry], after: Sequence[Entry], needed: Collection[Storage], born: set[Storage]) -> set[Storage]:
    """The cheapest cut between what is computed once and what the backward pass reads.

    Each storage is an edge from where it is made to where it is read, whose capacity is what keeping it costs; what comes from
    outside of the block is held anyway, and costs nothing.
    """
    import networkx

    readers: dict[Storage, list[Entry]] = defaultdict(list)
    for entry in before:
        for storage in entry.read:
            readers[storage].append(entry)
    arguments = {storage for entry in after if not entry.plain for storage in entry.read}
    far, distance = _far_apart(before, readers), _distances(before, needed)
    graph: Any = networkx.DiGraph()
    graph.add_nodes_from((SOURCE, SINK))
    for entry in before:
        reduced = sum(storage.size for storage in entry.read) // REDUCED
        for made in entry.made:
            if not entry.plain or made.size < reduced or entry in far or made in arguments:
                graph.add_edge(SOURCE, (made, "in"), capacity=math.inf)
            for read in entry.read:
                graph.add_edge((read, "out"), (made, "in"), capacity=math.inf)
    for storage in {*born, *readers}:
        written = storage in arguments or any(not entry.plain for entry in readers[storage])
        cost = (storage.size if storage in born else 0) * DISTANCE ** distance.get(storage, FURTHEST) * (1 if written else UNWRITTEN)
        graph.add_edge((storage, "in"), (storage, "out"), capacity=cost)
        if storage not in born:
            graph.add_edge(SOURCE, (storage, "in"), capacity=math.inf)
    for storage in needed:
        graph.add_edge((storage, "out"), SINK, capacity=math.inf)
    _, (near, _) = networkx.minimum_cut(graph, SOURCE, SINK)
    return {storage for storage in born if (storage, "in") in near and (storage, "out") not in near}


def _distances(before: Sequence[Entry], needed: Collection[Storage]) -> dict[Storage, int]:
    """Operations from a result to the backward pass."""
    found = dict.fromkeys(needed, 1)
    for entry in reversed(before):
        nearest = min((found.get(storage, FURTHEST) for storage in entry.made), default=FURTHEST)
        for storage in entry.read:
            found[storage] = min(found.get(storage, FURTHEST), nearest + 1)
    return found


def _far_apart(before: Sequence[Entry], readers: Mapping[Storage, Sequence[Entry]]) -> set[Entry]:
    """Element-wise operations that read something again after a product that hangs on its first use: no kernel does both."""
    found: set[Entry] = set()
    for uses in readers.values():
        reached: set[Storage] = set()
        product = math.inf
        for entry in before:
            if uses[0].time <= entry.time <= uses[-1].time and (entry in uses or reached.intersection(entry.read)):
                reached.update(entry.made)
                product = product if entry.plain else min(product, entry.time)
        found.update(entry for entry in uses if entry.plain and entry.time > product)
    return found
