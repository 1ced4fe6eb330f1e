"""Runs functions on several processes of a gloo group, with a deadline: what hangs is a failure, not a stuck test run."""

import datetime
import os
import tempfile
import time
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

DEADLINE = 90.0


def _start(rank, world, functions, rendezvous, results):
    os.environ.pop("TRITON_INTERPRET", None)  # collectives are the same for both paths, and the reference starts faster
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world, timeout=datetime.timedelta(seconds=30))
    found = {}
    for function in functions:
        try:
            found[function.__name__] = (True, function(rank, world))
        except Exception:  # noqa: PERF203  the others go on, and may time out waiting for this rank
            found[function.__name__] = (False, traceback.format_exc())
    results.put((rank, found))
    dist.destroy_process_group()


def run(world, *functions):
    """{name of the function: [its plain result on each rank]}, for `results_of`; an AssertionError where a rank does not come back."""
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_start, args=(n, world, functions, f"{folder}/store", results), daemon=True) for n in range(world)
        ]
        environment = os.environ.pop("TRITON_INTERPRET", None)
        try:
            for p in processes:
                p.start()
        finally:
            if environment is not None:
                os.environ["TRITON_INTERPRET"] = environment
        found, deadline = {}, time.monotonic() + DEADLINE
        while len(found) < world and time.monotonic() < deadline and (any(p.is_alive() for p in processes) or not results.empty()):
            if results.empty():
                time.sleep(0.01)
            else:
                rank, value = results.get()
                found[rank] = value
        for p in processes:
            p.join(max(deadline - time.monotonic(), 0))
            if p.is_alive():
                p.kill()
    assert len(found) == world, f"only ranks {sorted(found)} of {world} came back within {DEADLINE} s"
    return {f.__name__: [found[n][f.__name__] for n in range(world)] for f in functions}


def results_of(ran, function):
    """What a function gave on each rank, in rank order."""
    for rank, (ok, value) in enumerate(ran[function.__name__]):
        assert ok, f"rank {rank}:\n{value}"
    return [value for _, value in ran[function.__name__]]
