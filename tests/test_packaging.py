"""The wheel has all that the library needs, and nothing that belongs to the checkout; extras name each other consistently."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import tri_reduce

ROOT = Path(__file__).parent.parent
PROJECT = (ROOT / "pyproject.toml").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from a copy, so that the checkout stays as it is; nothing is downloaded."""
    pytest.importorskip("build")
    if int(version("setuptools").split(".")[0]) < 77:
        pytest.skip("needs setuptools 77")
    work = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "tri_reduce", work / "tri_reduce", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, work)
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", work / "dist", work], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next((work / "dist").glob("*.whl"))


def test_the_wheel_has_every_module_its_data_and_its_types(wheel):
    found = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    package = ROOT / "tri_reduce"
    wanted = {str(p.relative_to(ROOT)) for p in package.rglob("*") if p.is_file() and p.suffix not in (".pyc", ".pyo")}
    assert found == wanted
    assert {"tri_reduce/py.typed", "tri_reduce/common_problems.txt"} <= found


def test_what_is_in_the_wheel_runs_and_has_one_version(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "tri_reduce", "--version"], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.stdout.strip() == tri_reduce.__version__ == wheel.name.split("-")[1]
    scripts = next(tmp_path.glob("*.dist-info/entry_points.txt")).read_text()
    assert "tri-reduce = tri_reduce.cli:main" in scripts


def test_every_extra_that_a_message_names_exists():
    extras = set(re.findall(r"^(\w+) = \[", PROJECT.split("[project.optional-dependencies]")[1].split("\n[")[0], re.MULTILINE))
    pages = [*(ROOT / "tri_reduce").rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "Makefile"]
    named = {e for page in pages for found in re.findall(r"tri-reduce\[([\w,]+)\]", page.read_text()) for e in found.split(",")}
    assert named and named <= extras
