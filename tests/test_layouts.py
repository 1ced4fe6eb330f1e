"""Any strides, any offset, no copy of the input: views of every kind give what their contiguous copy means."""

import itertools

import pytest
import torch
from bounds import check

import tri_reduce

reduce = tri_reduce.reduce
OPS = ("sum", "max", "argmin", "var", "any")
ALTERNATING = (((4, 6, 5, 7), (0, 2, 3)), ((4, 6, 5, 7), (1, 3)), ((2, 3, 4, 5, 6), (0, 2, 4)), ((3, 50, 8), 1))


def grid(*shape, device, dtype=torch.float32):
    n = torch.Size(shape).numel()
    return (torch.arange(n, device=device) * 37 % 101 - 50).reshape(shape).to(dtype)


VIEWS = {
    "transposed": lambda x: x.transpose(0, 2),
    "channels last": lambda x: x.permute(1, 2, 0),
    "steps": lambda x: x[1::2, ::3, 1::5],
    "one column": lambda x: x[:, :, 3],
    "expanded row": lambda x: x[:1].expand(5, -1, -1),
    "expanded middle": lambda x: x[:, :1, ::2].expand(-1, 4, -1),
    "expanded scalar": lambda x: x[0, 0, 0].expand(6, 3, 40),
    "offset": lambda x: x.reshape(-1)[7:7 + 390].view(13, 30),
    "diagonal": lambda x: x[:, :6, :6].diagonal(dim1=1, dim2=2),
    "overlapping windows": lambda x: x.reshape(-1).unfold(0, 33, 5),
    "size one axes": lambda x: x[:, None, :, None, 2:3],
}  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_reduces_like_its_copy_over_every_choice_of_dims(view, device):
    x = VIEWS[view](grid(7, 9, 31, device=device))
    dims = [c for n in range(1, x.dim() + 1) for c in itertools.combinations(range(x.dim()), n)][:8]
    for dim, op in zip([*dims, None], itertools.cycle(OPS)):
        if op == "argmin" and isinstance(dim, tuple):
            dim = dim[0]
        check(reduce(x, op, dim), x, op, dim)
        check(reduce(x, "sum", dim, True), x, "sum", dim, True)


@pytest.mark.parametrize("shape, dim", ALTERNATING, ids=str)
def test_kept_and_reduced_axes_may_alternate(shape, dim, device):
    for x in (grid(*shape, device=device), grid(*shape[::-1], device=device).permute(*range(len(shape))[::-1])):
        for op in ("sum", "min", "var", "logsumexp"):
            check(reduce(x, op, dim), x, op, dim)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64], ids=str)
def test_a_misaligned_start_is_right_after_an_aligned_one_was_compiled(dtype, device):
    base = (grid(4200, device=device).abs() % 7).to(dtype)
    for start in (0, 1, 2, 3, 4, 5, 7, 8, 16, 0):
        x = base[start : start + 512].view(4, 128)
        check(reduce(x, "sum", 1, dtype=torch.float32), x, "sum", 1, dtype=torch.float32)
        check(reduce(x, "max", 0), x, "max", 0)


@pytest.mark.parametrize("n", [1, 7, 8, 9, 63, 65, 255, 257, 1023, 4095])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8], ids=str)
def test_rows_of_odd_length_start_at_every_alignment(n, dtype, device):
    x = grid(9, n, device=device).to(dtype)
    for op in ("sum", "max", "argmax"):
        check(reduce(x, op, 1), x, op, 1)
        check(reduce(x[1:], op, 1), x[1:], op, 1)


def test_rows_of_a_padded_matrix_do_not_read_the_padding(device):
    buf = torch.full((6, 1040), float("nan"), device=device)
    buf[:, 3:1033] = grid(6, 1030, device=device)
    x = buf[:, 3:1033]
    for op, dim in (("sum", 1), ("max", 1), ("sum", 0), ("logsumexp", None), ("argmin", None)):
        check(reduce(x, op, dim), x, op, dim)


def test_an_expanded_axis_counts_every_repetition(device):
    x = grid(3, 1, device=device).expand(3, 5000)
    for op in ("sum", "mean", "var", "count_nonzero", "sum_sq", "max", "argmax", "logsumexp"):
        check(reduce(x, op, 1), x, op, 1)
    odd = torch.tensor([[5], [6]], device=device).expand(2, 5)
    assert reduce(odd, "xor", 1).tolist() == [5, 6] and reduce(odd[:, :4], "xor", 1).tolist() == [0, 0]
    assert reduce(odd, "prod", 1).tolist() == [5**5, 6**5]


def test_the_input_is_never_written(device):
    x = grid(5, 1031, device=device)
    before = x.clone()
    for op, dim in itertools.product(OPS, (0, 1, None)):
        reduce(x, op, dim)
    assert torch.equal(x, before)


def test_many_rows_fold_into_the_grid(device):
    n = 70001 if device != "cpu" else 2100
    for shape, dim in (((n, 3, 2), 1), ((2, 3, n), 1), ((n, 1, 5), 2), ((3, n), 0)):
        x = torch.ones(shape, device=device)
        got = reduce(x, "sum", dim)
        assert bool((got == shape[dim]).all()) and got.shape == x.sum(dim).shape


def test_the_real_view_of_a_complex_tensor_is_fine(device):
    x = torch.view_as_real(torch.ones(4, 6, dtype=torch.complex64, device=device))
    check(reduce(x, "sum", 1), x, "sum", 1)
