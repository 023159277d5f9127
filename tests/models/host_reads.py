"""Where a computation waits for its device, as far as that shows on a CPU: whatever reads a tensor's numbers, or makes one of numbers."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

READING = {"_local_scalar_dense", "is_nonzero", "item", "equal", "nonzero", "masked_select", "unique_consecutive", "bincount", "_unique2"}
INDEXING = {"index", "index_put", "index_put_", "_unsafe_index"}  # which read where they are given a mask
READERS = {torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.cpu}
UPLOADS = {torch.tensor, torch.as_tensor, torch.from_numpy, torch.Tensor.new_tensor}


class Reads:
    """The places that read tensors, and those that made tensors of numbers, as file:function; what lies on the host by intent is free."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.uploaded: list[str] = []
        self.host = WeakIdKeyDictionary()  # tensors made with device="cpu", and what was made of them alone

    def on_host(self, values: object) -> bool:
        tensors = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]
        return bool(tensors) and all(tensor in self.host for tensor in tensors)

    def keep(self, values: object) -> None:
        for value in tree_leaves(values):
            if isinstance(value, torch.Tensor):
                self.host[value] = True


class _Functions(TorchFunctionMode):
    def __init__(self, reads: Reads) -> None:
        super().__init__()
        self.reads = reads

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in READERS and not self.reads.on_host(args):
            self.reads.read.append(_place())
        if function in UPLOADS:
            self.reads.uploaded.append(_place())
        made = function(*args, **kwargs)
        if kwargs.get("device") == "cpu" or self.reads.on_host((args, kwargs)):
            self.reads.keep(made)
        return made


class _Operations(TorchDispatchMode):
    def __init__(self, reads: Reads) -> None:
        super().__init__()
        self.reads = reads

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, host = function._schema.name.removeprefix("aten::"), self.reads.on_host(args)
        masked = name in INDEXING and any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
        if (name in READING or masked) and not host:
            self.reads.read.append(_place())
        made = function(*args, **(kwargs or {}))
        if host:
            self.reads.keep(made)
        return made


@contextmanager
def host_reads() -> Iterator[Reads]:
    """Notes the reads of the block, in this thread."""
    reads = Reads()
    with _Functions(reads), _Operations(reads):
        yield reads


def _place() -> str:
    """The innermost function that is neither torch's nor this file's; "backward" inside an operation's derivative."""
    for frame in reversed(traceback.extract_stack()):
        if frame.name == "backward" and "/torch/autograd/" in frame.filename:
            return "backward"
        if "/torch/" not in frame.filename and frame.filename != __file__ and "<" not in frame.filename:
            return f"{Path(frame.filename).name}:{frame.name}"
    return ""
