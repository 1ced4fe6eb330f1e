"""The store of tuned entries: nothing that was put is lost, nothing that lies there can crash a program."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from tri_reduce.autotune import Store, StoreWarning, cache_dir

WRITER = """
import sys
from tri_reduce.autotune import Store
store, name, count = Store(sys.argv[1], "a device"), sys.argv[2], int(sys.argv[3])
for n in range(count):
    store.put(f"{name}-{n}", {"n": n})
    print(n, flush=True)
"""


def writer(directory, name, count):
    root = str(Path(__file__).parent.parent)
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), name, str(count)], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": root},
    )  # fmt: skip


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path, "a device")


@pytest.fixture
def unwritable(tmp_path):
    """A directory that cannot be made, whoever asks: a file is in its place."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "store"


def test_what_was_put_is_there_for_everyone(store, tmp_path):
    store.put("sum", {"config": {"XBLOCK": 4, "list": (1, 2)}, "us": 1.5})
    for other in (store, Store(tmp_path, "a device")):
        assert other.get("sum") == {"config": {"XBLOCK": 4, "list": [1, 2]}, "us": 1.5}
        assert other.get("max") is None and other.keys() == ["sum"]
    assert json.loads(store.path.read_text())["entries"] == {"sum": store.get("sum")}


def test_an_entry_is_a_copy_both_ways(store):
    entry = {"config": {"XBLOCK": 4}}
    store.put("sum", entry)
    entry["config"]["XBLOCK"] = store.get("sum")["config"]["XBLOCK"] = 8
    assert store.get("sum") == {"config": {"XBLOCK": 4}}


def test_making_and_reading_a_store_touches_no_disk(tmp_path):
    store = Store(tmp_path / "new" / "deep", "a device")
    assert store.get("sum") is None and store.keys() == []
    assert not (tmp_path / "new").exists()
    store.put("sum", {})
    assert store.path.is_file() and store.path.parent == tmp_path / "new" / "deep"


def test_devices_have_files_of_their_own(tmp_path):
    names = ["NVIDIA H200", "NVIDIA H100", "a/b", "a_b", "../up", "", "x" * 300, "é"]
    stores = [Store(tmp_path, name) for name in names]
    assert len({s.path for s in stores}) == len(names)
    for n, s in enumerate(stores):
        assert s.path.parent == tmp_path
        s.put("key", {"n": n})
    assert [s.get("key")["n"] for s in stores] == list(range(len(names)))


def test_the_default_is_this_device_in_the_cache_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TRI_REDUCE_CACHE_DIR", str(tmp_path))
    store = Store()
    assert store.path.parent == tmp_path and store.path.suffix == ".json"


def test_others_entries_are_seen_and_kept(store, tmp_path):
    other = Store(tmp_path, "a device")
    store.put("a", {"n": 1})
    other.put("b", {"n": 2})
    store.put("c", {"n": 3})
    other.put("a", {"n": 4})
    assert store.keys() == other.keys() == ["a", "b", "c"] and store.get("a") == {"n": 4}


@pytest.mark.parametrize("key, entry", [(1, {}), ("a", None), ("a", [1]), ("a", {"x": 1j}), ("a", {"x": {1}})], ids=str)
def test_what_is_no_entry_is_a_type_error(store, key, entry):
    with pytest.raises(TypeError):
        store.put(key, entry)
    assert store.keys() == [] and not store.path.exists()


def test_a_number_that_json_has_not_is_a_value_error(store):
    with pytest.raises(ValueError):
        store.put("a", {"us": float("nan")})


BAD = {
    "cut short": b'{"format": 1, "device": "a device", "entr',
    "empty": b"",
    "no text": b"\xff\xfe\x00\x01",
    "too deep": b"[" * 100000,
    "a list": b"[1, 2]",
    "another format": b'{"format": 99, "device": "a device", "entries": {"sum": {}}}',
    "another device": b'{"format": 1, "device": "another", "entries": {"sum": {}}}',
    "no entries": b'{"format": 1, "device": "a device"}',
    "entries that are none": b'{"format": 1, "device": "a device", "entries": {"sum": 3}}',
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_file_that_cannot_be_used_is_ignored_with_one_warning_and_put_aside(store, text):
    store.path.write_bytes(text)
    with pytest.warns(StoreWarning) as caught:
        assert store.get("sum") is None and store.keys() == []
        store.put("max", {"n": 1})
        assert store.keys() == ["max"]
    assert len(caught) == 1 and str(store.path) in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Store(store.path.parent, "a device").keys() == ["max"]
    assert Path(f"{store.path}.unusable").read_bytes() == text


def test_a_file_damaged_later_is_warned_of_again(store):
    for text in (b"{", b"[]"):
        store.put("sum", {})
        store.path.write_bytes(text)
        with pytest.warns(StoreWarning) as caught:
            assert store.get("sum") is None and store.get("sum") is None
        assert len(caught) == 1


def test_where_nothing_can_be_written_entries_stay_in_memory(unwritable):
    store = Store(unwritable, "a device")
    with pytest.warns(StoreWarning, match=str(store.path)):
        store.put("sum", {"n": 1})
    assert store.get("sum") == {"n": 1} and store.keys() == ["sum"]


def test_what_stayed_in_memory_is_written_as_soon_as_that_works(unwritable):
    store = Store(unwritable, "a device")
    with pytest.warns(StoreWarning):
        store.put("sum", {"n": 1})
    unwritable.parent.unlink()
    store.put("max", {"n": 2})
    assert Store(unwritable, "a device").keys() == ["max", "sum"]


def test_a_file_that_cannot_be_read_is_left_alone(store):
    store.path.mkdir()
    with pytest.warns(StoreWarning, match="cannot be read") as caught:
        assert store.get("sum") is None and store.keys() == []
    assert len(caught) == 1
    with pytest.warns(StoreWarning, match="cannot be written"):
        store.put("sum", {"n": 1})
    assert store.get("sum") == {"n": 1} and store.path.is_dir()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_is_read_and_warned_of(store):
    store.put("sum", {"n": 1})
    store.path.parent.chmod(0o500)
    try:
        with pytest.warns(StoreWarning, match="cannot be written"):
            store.put("max", {"n": 2})
        assert store.keys() == ["max", "sum"] and Store(store.path.parent, "a device").keys() == ["sum"]
    finally:
        store.path.parent.chmod(0o700)


def test_a_lock_that_never_comes_free_costs_a_warning(store, monkeypatch):
    from filelock import FileLock

    monkeypatch.setattr("tri_reduce.store.LOCK_SECONDS", 0.05)
    held = threading.Event(), threading.Event()

    def hold():
        with FileLock(f"{store.path}.lock"):
            held[0].set()
            held[1].wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held[0].wait(30)
    with pytest.warns(StoreWarning, match="lock"):
        store.put("sum", {"n": 1})
    held[1].set()
    thread.join()
    store.put("max", {"n": 2})
    assert Store(store.path.parent, "a device").keys() == ["max", "sum"]


def test_two_processes_that_write_a_thousand_entries_each_lose_none(store):
    for process in [writer(store.path.parent, name, 1000) for name in ("a", "b")]:
        process.communicate(timeout=120)
        assert process.returncode == 0
    assert len(store.keys()) == 2000
    assert all(store.get(f"{name}-{n}") == {"n": n} for name in ("a", "b") for n in (0, 1, 500, 999))


def test_threads_that_share_a_store_lose_nothing(store):
    def write(name):
        for n in range(50):
            store.put(f"{name}-{n}", {"n": n})

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.keys()) == len(Store(store.path.parent, "a device").keys()) == 200


def test_a_killed_writer_leaves_a_whole_file_with_all_that_it_had_put(store):
    seed = 20261129
    rng, done = random.Random(seed), {}
    for life in range(4):
        process = writer(store.path.parent, f"life{life}", 100000)
        process.stdout.readline()
        time.sleep(rng.random() / 5)
        process.send_signal(signal.SIGKILL)
        acknowledged = process.communicate(timeout=60)[0].splitlines()
        done[life] = 1 + sum(line.isdigit() for line in acknowledged[:-1])  # the last line may be cut
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            keys = set(Store(store.path.parent, "a device").keys())
        assert all(f"life{n}-{i}" in keys for n, count in done.items() for i in range(count)), f"seed {seed}"
    store.put("after", {})
    assert Store(store.path.parent, "a device").get("after") == {} and max(done.values()) > 1


@pytest.mark.parametrize("given, xdg, found", [("/a/b", "/x", "/a/b"), ("~/c", "", "/home/me/c"), ("", "/x", "/x/tri_reduce"), (
    None, "", "/home/me/.cache/tri_reduce"), (None, None, "/home/me/.cache/tri_reduce")])  # fmt: skip
def test_the_cache_directory_is_the_users(given, xdg, found, monkeypatch):
    for name, value in (("TRI_REDUCE_CACHE_DIR", given), ("XDG_CACHE_HOME", xdg), ("HOME", "/home/me")):
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    assert str(cache_dir()) == found
