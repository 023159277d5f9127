"""kept_by_compiler: what a compiled block keeps for its backward pass: less than autograd asks for without a compiler."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ledger import Entry, Storage, Stretch

SOURCE, SINK = "computed once", "backward pass"
REDUCED = 4  # times smaller than what it is made of: such a result is kept
# What keeping costs by the partitioner's own measure: more the further from the backward pass, twice what need not be written else;
# nothing where it comes from outside of the block, where something holds it anyway.
DISTANCE, FURTHEST, UNWRITTEN = 1.1, 100, 2.0


def kept_by_compiler(entries: Sequence[Entry], forward: Stretch, backward: Stretch, decided: bool) -> set[Storage]:
    """What AOTAutograd keeps of a block's forward pass for its backward pass (torch/_functorch/partitioners.py, solve_min_cut).

    `decided`: a checkpoint's policy says what is kept, of which goes what nothing reads. Else it is the least from which element-wise
    operations and reductions give again what the backward pass reads, where products, attention and their arguments are computed once.
    """
    before, after = ([entry for entry in entries if entry.stretch is stretch] for stretch in (forward, backward))
    if not decided:
        before, after = _merged(before, after)
    born = {storage for entry in before for storage in entry.made if storage.stretch is forward}
    after = _used(after)
    needed = born.intersection(storage for entry in after for storage in entry.read)
    return needed if decided or not needed else _least(before, after, needed, born)


def _merged(before: Sequence[Entry], after: Sequence[Entry]) -> tuple[list[Entry], list[Entry]]:
    """What is computed twice once, and without conversions to a wider type and back, as autocast makes them."""
    stands: dict[Storage, Storage] = {}
    known: dict[tuple[object, ...], Entry] = {}
    wide: dict[Storage, Entry] = {}
    found: list[Entry] = []

    def own(entry: Entry) -> Entry:
        read, made = (tuple(stands.get(storage, storage) for storage in group) for group in (entry.read, entry.made))
        return replace(entry, read=read, made=made)

    for entry in map(own, before):
        key = entry.same and tuple(_stood_for(part, stands) for part in entry.same)
        twin = known.setdefault(key, entry) if key else entry
        if twin is not entry:
            stands.update(zip(entry.made, twin.made, strict=True))
            continue
        if entry.converted and len(entry.read) == len(entry.made) == 1:
            origin = wide.get(entry.read[0])
            if origin and origin.converted and origin.converted[0] == entry.converted[1]:
                stands[entry.made[0]] = origin.read[0]
                continue
            if entry.converted[0].itemsize < entry.converted[1].itemsize:
                wide[entry.made[0]] = entry
        found.append(entry)
    return found, [own(entry) for entry in after]


def _stood_for(part: object, stands: Mapping[Storage, Storage]) -> object:
    return (stands.get(part[0], part[0]), *part[1:]) if isinstance(part, tuple) else part


def _used(entries: Sequence[Entry]) -> list[Entry]:
    """The operations of a stretch whose results are used, in it or after it."""
    used: set[Storage] = set()
    found: list[Entry] = []
    for entry in reversed(entries):
        if any(storage in used or not 0 <= storage.end <= entries[-1].time for storage in entry.made):
            used.update(entry.read)
            found.append(entry)
    return found[::-1]


def _least(before: Sequence[Entry], after: Sequence[Entry], needed: Collection[Storage], born: set[Storage]) -> set[Storage]:
    """The smallest cut between what is computed once and what the backward pass reads."""
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
        large = sum(storage.size for storage in entry.read) // REDUCED
        for made in entry.made:
            if not entry.plain or made.size < large or entry in far or made in arguments:
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
