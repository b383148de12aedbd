"""A package of somebody else's adds an agent that ``fleetgym compare`` finds by its name."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

AGENT = '''"""An agent in a package of its own."""

import numpy as np


class Sleepy:
    """Never rents anything."""

    def __init__(self, replicas=0):
        self.replicas = replicas

    def reset(self, view, *, seed):
        self.view = view

    def act(self, observation, info):
        return np.minimum(self.replicas, self.view.nvec - 1)
'''

METADATA = "Metadata-Version: 2.1\nName: sleepy-fleets\nVersion: 1.0\nRequires-Dist: fleetgym\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: by-hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
ENTRY_POINTS = "[fleetgym.agents]\nsleepy = sleepy_fleets:Sleepy\n"


def write_wheel(folder: Path) -> Path:
    """Write the package as a wheel, by hand, so that nothing is needed from the network."""
    info = "sleepy_fleets-1.0.dist-info"
    files = {
        "sleepy_fleets/__init__.py": AGENT,
        f"{info}/METADATA": METADATA,
        f"{info}/WHEEL": WHEEL,
        f"{info}/entry_points.txt": ENTRY_POINTS,
    }
    record = ""
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(text.encode())}\n"
    files[f"{info}/RECORD"] = record + f"{info}/RECORD,,\n"
    path = folder / "sleepy_fleets-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("plugin")
    wheel, target = write_wheel(folder), folder / "site"
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
        str(wheel),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return target


def fleetgym(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Call the command line with the package on the path, outside the checkout."""
    environment = {**os.environ, "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "fleetgym", *words]
    return subprocess.run(command, cwd=site.parent, env=environment, capture_output=True, text=True)


def test_the_agent_is_listed_with_its_package(site: Path) -> None:
    """Who brought it can be seen."""
    listed = fleetgym(site, "list", "agents").stdout
    (line,) = [line for line in listed.splitlines() if line.startswith("sleepy")]
    assert "sleepy-fleets" in line


@pytest.mark.slow
def test_compare_finds_the_agent_by_its_name(site: Path) -> None:
    """It plays in the table like any other, isolated, in two workers, with arguments."""
    words = (
        "compare",
        "sleepy",
        "sleepy(replicas=1)",
        "hold",
        "--suite",
        "fleet-v0/toy/drop",
        "--workers",
        "2",
    )
    done = fleetgym(site, *words)
    assert done.returncode == 0, done.stderr
    rows = [line.split()[0] for line in done.stdout.splitlines()[2:7]]
    assert {"sleepy", "sleepy(replicas=1)", "hold", "(clairvoyant)"} <= set(rows)


def test_without_the_package_the_name_is_unknown(site: Path) -> None:
    """The error is that of any name that nothing answers to."""
    done = fleetgym(site.parent, "run", "fleet-v0/toy/drop", "--agent", "sleepy")
    assert done.returncode == 2
    assert "unknown agent 'sleepy'" in done.stderr
