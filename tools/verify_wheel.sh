#!/usr/bin/env bash
# Build wheel and sdist, install the wheel into a clean environment, and use it outside the repository.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

.venv/bin/python -m build --outdir "$place/dist" . >"$place/build.log" 2>&1 || { cat "$place/build.log"; exit 1; }
ls "$place/dist"
"${PYTHON:-python3}" -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$place"/dist/*.whl
mkdir "$place/elsewhere" && cd "$place/elsewhere"
"$place/venv/bin/fleetgym" doctor
"$place/venv/bin/fleetgym" run fleet-v0/toy/two-pools --agent hold --scenario 0
"$place/venv/bin/python" - <<PYTHON
import pathlib
import fleetgym, gymnasium

assert not pathlib.Path(fleetgym.__file__).is_relative_to("$here"), fleetgym.__file__
env = gymnasium.make("fleetgym:FleetAlloc-v0")
env.reset(options={"scenario": 0})
windows, done = 0, False
while not done:
    _, _, done, _, _ = env.step(env.action_space.sample())
    windows += 1
print("one episode from the wheel:", windows, "windows")
PYTHON
# The sdist builds the same package.
tar -xzf "$place"/dist/*.tar.gz -C "$place"
test -f "$place"/fleetgym-*/fleetgym/instance.py
test -f "$place"/fleetgym-*/instances/manifest.json
