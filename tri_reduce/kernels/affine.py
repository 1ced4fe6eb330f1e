"""Offsets that are affine in the lanes of a tile, as Ascend's DMA moves: a tile lies on the innermost axis of either side, where it is on
the others is a scalar.
"""

from .compat import jit, tl
from .tiles import unravel_outer


@jit
def along(x, AXIS: tl.constexpr):
    """A row of lanes laid along an axis of a tile."""
    if AXIS == 1:
        return x[None, :]
    else:
        return x[:, None]


@jit
def outer_offset(outer, stride, NAXES: tl.constexpr, DEEP: tl.constexpr, OPERAND: tl.constexpr):
    """The scalar offset of a position on all axes but the innermost."""
    if NAXES == 1:
        return 0
    else:
        return unravel_outer(outer, stride, NAXES, DEEP, OPERAND)


@jit
def outer_and_start(tile, inner_tiles, BLOCK: tl.constexpr, NAXES: tl.constexpr):
    """(position on the outer axes, first lane on the inner one) of a tile; tiles of the inner axis come first."""
    if NAXES == 1:
        return tile * 0, tile * BLOCK
    else:
        return tile // inner_tiles, tile % inner_tiles * BLOCK


@jit
def inner_length(K, K0, NAXES: tl.constexpr):
    """Outputs on the innermost kept axis."""
    if NAXES == 1:
        return K
    else:
        return K0
