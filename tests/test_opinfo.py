"""torch's own OpInfo samples against torch: exact where the answer is exact, else torch in float64 within the error bound.

On the CPU the interpreter costs 10-50 ms a launch, so each (op, dtype) takes SAMPLES of its list, evenly spread; a GPU takes all.
"""

import math

import numpy as np
import pytest
import torch
from bounds import mismatch, tolerance
from devices import ON_GPU
from oracle import DTYPES, FLOATS, as_matrix, dims_of, numpy_of
from torch.testing._internal.common_methods_invocations import op_db

import tri_reduce

SHARED = ("sum", "prod", "amax", "amin", "mean", "any", "all", "argmax", "argmin", "var", "std", "logsumexp", "count_nonzero")
NAMES = (*SHARED, "linalg.vector_norm", "mv", "addmv")
OPINFOS = {f"{o.name}-{o.variant_test_name}".rstrip("-"): o for o in op_db if o.name in NAMES}
SAMPLES = 10**6 if ON_GPU else 40
EXACT = ("amax", "amin", "any", "all", "argmax", "argmin", "count_nonzero")


def cases():
    for label, info in OPINFOS.items():
        ours = FLOATS if info.name in ("mv", "addmv") else DTYPES
        supported = info.supported_dtypes("cuda" if ON_GPU else "cpu")
        yield from (pytest.param(info, d, id=f"{label}-{str(d)[6:]}") for d in ours if d in supported)


def samples_of(info, device, dtype):
    samples = list(info.sample_inputs(device, dtype))
    step = max(len(samples) / SAMPLES, 1)
    return [samples[int(i * step)] for i in range(min(SAMPLES, len(samples)))]


def dim_of(name, args, kwargs):
    """The `dim` of a call in torch's spelling."""
    args = list(args[1:] if name == "linalg.vector_norm" else args)
    if name in ("var", "std") and args and isinstance(args[0], bool):
        return None
    return args[0] if args else kwargs.get("dim")


def everything_for_empty_dim(x, args, kwargs):
    """The contract: an empty dim tuple or list reduces everything, also where torch reduces nothing."""
    full = tuple(range(x.dim()))

    def swap(v):
        return full if isinstance(v, (tuple, list)) and len(v) == 0 else v

    return tuple(swap(a) for a in args), {k: swap(v) for k, v in kwargs.items()}


def correction_of(args, kwargs):
    if "correction" in kwargs:
        return 1 if kwargs["correction"] is None else kwargs["correction"]
    flags = [a for a in args if isinstance(a, bool)]
    return int(flags[0] if flags else kwargs.get("unbiased", True))


def ours_and_torchs(info, sample):
    """(our result, torch's result, its name here, what `tolerance` wants to know)."""
    x, args, kwargs = sample.input, tuple(sample.args), dict(sample.kwargs)
    wanted = info.op(x, *everything_for_empty_dim(x, args, kwargs)[0], **everything_for_empty_dim(x, args, kwargs)[1])
    name, options = info.name, {}
    if name == "linalg.vector_norm":
        p = kwargs.pop("ord", args[0] if args else 2)
        got = tri_reduce.norm(x, p, *args[1:], **kwargs)
        return got, wanted, "norm", dict(ord=p)
    if name in ("var", "std"):
        options = dict(correction=correction_of(args, kwargs))
    return getattr(tri_reduce, name)(x, *args, **kwargs), wanted, name, options


def against_float64(info, sample, got, wanted, name, options):
    """None or the first difference between our result and torch's op run on float64."""
    x, args, kwargs = sample.input, tuple(sample.args), dict(sample.kwargs)
    dim = dim_of(info.name, args, kwargs)
    asked = kwargs.pop("dtype", None)
    compute = asked or (x.dtype if x.is_floating_point() else torch.float32)
    wide = x.to(compute).cpu().double()  # torch converts the input first
    args64, kwargs64 = everything_for_empty_dim(wide, args, kwargs)
    ref = info.op(wide, *args64, **kwargs64).numpy().reshape(-1)
    v = as_matrix(numpy_of(wide), dim)
    if asked is not None and torch.finfo(asked).bits < 32:
        compute = torch.float32
    return mismatch(got, ref, tolerance(name, v, np.ones(v.shape, bool), ref, compute, **options), wanted.shape, wanted.dtype)


def difference(info, sample):
    got, wanted, name, options = ours_and_torchs(info, sample)
    if name in EXACT or not wanted.is_floating_point():
        ref, zero = wanted.cpu().reshape(-1), np.zeros(wanted.numel())
        ref = ref.double().numpy() if wanted.is_floating_point() else ref.numpy()
        return mismatch(got, ref, zero, wanted.shape, wanted.dtype)
    return against_float64(info, sample, got, wanted, name, options)


def gemv_difference(info, sample):
    if info.name == "mv":
        a, x, y, alpha, beta = sample.input, sample.args[0], None, 1, 0
        got = tri_reduce.gemv(a, x)
        wanted = torch.mv(a, x)
    else:
        y, (a, x) = sample.input, sample.args
        alpha, beta = sample.kwargs.get("alpha", 1), sample.kwargs.get("beta", 1)
        wanted = torch.addmv(y, a, x, alpha=alpha, beta=beta)
        got = tri_reduce.gemv(a, x, alpha=alpha, beta=beta, y=y.expand(wanted.shape))
    a, x = a.cpu().double(), x.cpu().double()
    addend = torch.zeros(wanted.shape).double() if y is None else beta * y.cpu().double().expand(wanted.shape)
    ref = (alpha * (a @ x) + addend).numpy()
    eps = torch.finfo(torch.float64 if wanted.dtype is torch.float64 else torch.float32).eps
    size = (abs(alpha) * (a.abs() @ x.abs()) + addend.abs()).numpy()
    return mismatch(got, ref, 4 * eps * math.log2(a.shape[1] + 1) * size, wanted.shape, wanted.dtype)


@pytest.mark.parametrize("info, dtype", list(cases()))
def test_torchs_own_samples_agree(info, dtype, device):
    compare = gemv_difference if info.name in ("mv", "addmv") else difference
    wrong = []
    for sample in samples_of(info, device, dtype):
        problem = compare(info, sample)
        if problem is not None:
            wrong.append(f"{list(sample.input.shape)} args={sample.args} kwargs={sample.kwargs}: {problem}")
    assert not wrong, f"{len(wrong)} samples differ\n" + "\n".join(wrong[:5])


@pytest.mark.parametrize("name", SHARED)
def test_torchs_own_error_samples_are_errors_here(name, device):
    errors = list(OPINFOS[name].error_inputs(device)) if OPINFOS[name].error_inputs_func else []
    # torch limits its own kernels to 64 dims and `out` to one dtype; the contract here does neither
    errors = [e for e in errors if "out" not in e.sample_input.kwargs and e.sample_input.input.dim() <= 64]
    if not errors:
        pytest.skip("torch has no error samples for this op")
    for e in errors:
        with pytest.raises((RuntimeError, ValueError, TypeError, IndexError)):
            getattr(tri_reduce, name)(e.sample_input.input, *e.sample_input.args, **e.sample_input.kwargs)


@pytest.mark.parametrize("name", ["sum", "amax", "any", "argmax", "logsumexp", "norm", "count_nonzero", "var", "mean", "prod"])
def test_an_out_of_range_dim_is_torchs_index_error(name, device):
    x = torch.ones(2, 3, device=device)
    for dim in (2, -3):
        with pytest.raises(IndexError):
            getattr(tri_reduce, name)(x, dim=dim)


def test_every_op_of_the_list_was_found():
    assert {o.name for o in OPINFOS.values()} == set(NAMES)
    assert all(dims_of(2, empty) == (0, 1) for empty in ((), [], None))
