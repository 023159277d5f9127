"""What a compiled block keeps, beside AOTAutograd's own partition of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from trainer.memory.control_values import Masks
from trainer.memory.ledger import Ledger
from trainer.memory.partition import kept_by_compiler

TOKENS, WIDTH, RANK = 256, 64, 4
Given = tuple[Tensor, Tensor, list[Tensor]]
Block = Callable[[Tensor, Tensor, Sequence[Tensor]], Tensor]


def adapted(x: Tensor, weight: Tensor, down: Tensor, up: Tensor) -> Tensor:
    return functional.linear(x, weight) + functional.linear(functional.linear(x, down), up)


def feed_forward(x: Tensor, gate: Tensor, weights: Sequence[Tensor]) -> Tensor:
    normed = functional.layer_norm(x.float(), (WIDTH,)) * (1 + gate)
    return x + adapted(functional.gelu(adapted(normed.to(x.dtype), *weights[:3])), *weights[3:]) * gate


def read_three_times(x: Tensor, gate: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Autocast converts the same numbers for each layer; compiled code does it once."""
    normed = functional.layer_norm(x.float(), (WIDTH,))
    return x + sum(adapted(normed.to(torch.bfloat16), *weights[:3]).sigmoid() * number for number in (1, 2, 3)) * gate


def there_and_back(x: Tensor, gate: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Autocast converts what a product gave to float32 and back; compiled code does neither."""
    first = adapted(x, *weights[:3]).float()
    return x + adapted(first.to(torch.bfloat16), *weights[:3]) * gate


def read_again_far_away(x: Tensor, gate: Tensor, weights: Sequence[Tensor]) -> Tensor:
    inner = (x * gate).sin().to(x.dtype)
    return (inner + adapted(inner, *weights[:3])).cos() * inner


def arguments() -> Given:
    """The input, what modulates it, and two layers: each a frozen weight and the two of its LoRA."""
    shapes = ((WIDTH, WIDTH), (RANK, WIDTH), (WIDTH, RANK)) * 2
    weights = [nn.Parameter(torch.randn(shape, dtype=torch.bfloat16), requires_grad=RANK in shape) for shape in shapes]
    return torch.randn(1, TOKENS, WIDTH, dtype=torch.bfloat16, requires_grad=True), torch.randn(1, 1, WIDTH), weights


def kept_by_aot(block: Block, given: Given) -> int:
    """Bytes of what its forward graph returns for the backward one, weights and views of them left out."""
    found: list[int] = []

    def forward(graph: fx.GraphModule, _: Any) -> Any:
        out = next(node for node in graph.graph.nodes if node.op == "output").args[0]
        kept = {_base(node) for node in out[1:] if isinstance(node, fx.Node)}
        found.extend(node.meta["val"].nbytes for node in kept if node.op != "placeholder" and node is not _base(out[0]))
        return graph.forward

    x, gate, weights = given
    partition: Any = partial(min_cut_rematerialization_partition, static_lifetime_input_indices=list(range(2, 2 + len(weights))))
    compiled: Any = aot_function(
        lambda x, gate, *weights: block(x, gate, weights), fw_compiler=forward, bw_compiler=lambda graph, _: graph.forward,
        partition_fn=partition, decompositions=select_decomp_table(),
    )  # fmt: skip
    compiled(x, gate, *weights)
    return sum(found)


def _base(node: fx.Node) -> fx.Node:
    """What a view looks at."""
    while getattr(node.target, "is_view", False) and node.op == "call_function":
        node = node.all_input_nodes[0]
    return node


def kept_by_ours(block: Block, given: Given, decided: bool = False) -> int:
    with FakeTensorMode() as fake:
        x, gate, weights = fake.from_tensor(given[0]), fake.from_tensor(given[1]), [fake.from_tensor(weight) for weight in given[2]]
        with Ledger(Masks(), listed=True) as ledger:
            ledger.leave_out(weights)
            first = x * 1  # of the block before
            ledger.begin("forward 0")
            out = block(first, gate, weights)
            result = ledger.storage(out)
            ledger.begin("backward 0")
            out.backward(torch.empty_like(out))
            ledger.begin("end")
    before, after = (next(stretch for stretch in ledger.stretches if stretch.name == name) for name in ("forward 0", "backward 0"))
    return sum(storage.size for storage in kept_by_compiler(ledger.entries, before, after, decided) if storage is not result)


def only_added(x: Tensor, gate: Tensor, weights: Sequence[Tensor]) -> Tensor:
    return x + adapted(x, *weights[:3])


def test_where_a_policy_decides_all_is_kept_that_is_read() -> None:
    assert kept_by_ours(only_added, arguments(), decided=True) == TOKENS * RANK * 2  # between the two layers of the LoRA


@pytest.mark.parametrize("block", [feed_forward, read_three_times, there_and_back, read_again_far_away])
def test_the_same_bytes_as_aot_autograd(block: Block) -> None:
    given = arguments()
    assert kept_by_ours(block, given) == pytest.approx(kept_by_aot(block, given), rel=0.02)
