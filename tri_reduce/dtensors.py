"""`DTensor` and reducers: a `Partial` placement is a reduction that is still deferred over a mesh dim, as a Reducer's states are.

| placement | Reducer op | the local tensor is |
|---|---|---|
| `Partial("sum")` | sum | this rank's share of the sum |
| `Partial("max")`, `Partial("min")` | max, min | this rank's extreme |
| `Partial("avg")` | mean | this rank's mean; all ranks weigh the same, whatever number of contributions is behind each |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import ReducerError
from .reducer import Reducer

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

OPS = {"sum": "sum", "max": "max", "min": "min", "avg": "mean"}


def from_partial(tensor: DTensor) -> Reducer:
    """A reducer that holds this rank's part of a DTensor with one `Partial` placement.

    Args:
        tensor: [...]; its other placements stay as they are: the reducer has the shape of the local tensor.

    Returns:
        An active Reducer of sum, max, min or mean. `finalize(group=mesh.get_group(mesh_dim))` gives what `redistribute` to `Replicate`
        would, and further updates may go in before: for sum, max and min they count as contributions of this rank.

    Raises:
        ReducerError: no or several Partial placements, or one of another op.
    """
    from torch.distributed.tensor import Partial

    ops = [p.reduce_op for p in tensor.placements if isinstance(p, Partial)]
    if len(ops) != 1 or ops[0] not in OPS:
        raise ReducerError(f"from_partial: expected one Partial placement of {', '.join(OPS)}, got placements {tensor.placements}")
    local = tensor.to_local()
    reducer = Reducer(OPS[ops[0]], local.shape, local.dtype, local.device)
    reducer.update(local.detach())
    return reducer


def to_partial(reducer: Reducer, mesh: DeviceMesh, mesh_dim: int = 0) -> DTensor:
    """Finalize a reducer on this rank alone and leave the reduction over a mesh dim to the DTensor, which does it when it is needed.

    Args:
        reducer: active, of sum, max, min or mean. A seed of sum counts on the first rank of the mesh dim only, so once in all.
        mesh, mesh_dim: the ranks that have contributions; the other mesh dims hold replicas.

    Returns:
        DTensor of the reducer's shape, `Partial(op)` over mesh_dim. For mean, `Partial("avg")` is the mean of all contributions only
        where every rank had as many: else use `finalize(group=)`.

    Raises:
        ReducerError: another op.
    """
    from torch.distributed.tensor import DTensor, Partial, Replicate

    placement = {op: name for name, op in OPS.items()}.get(reducer.op if isinstance(reducer.op, str) else "")
    if placement is None:
        raise ReducerError(f"to_partial: DTensor has placements for {', '.join(OPS.values())}; {reducer!r} needs finalize(group=)")
    outs, error = reducer._ready(None)
    if error is not None:
        raise error
    seeds = reducer._seeds if placement != "sum" or mesh.get_local_rank(mesh_dim) == 0 else (None,)
    local = reducer._finish([p.states for p in reducer._parts], seeds, outs)
    placements = [Partial(placement) if d == mesh_dim else Replicate() for d in range(mesh.ndim)]
    return DTensor.from_local(local, mesh, placements, run_check=False)
