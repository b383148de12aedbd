#!/usr/bin/env bash
# Build the wheels and the sdist into dist, install the wheels into a clean environment, and use them outside the repository.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

rm -rf dist
.venv/bin/python -m build --outdir dist . >"$place/build.log" 2>&1 || { cat "$place/build.log"; exit 1; }
for set in fleet-v1 fleet-v2; do
    .venv/bin/python -m build --wheel --outdir dist "instances/$set" >"$place/build.log" 2>&1 ||
        { cat "$place/build.log"; exit 1; }
done
ls -l dist
"${PYTHON:-python3}" -m venv "$place/venv"
bin=$place/venv/bin
"$bin/python" -m pip install --quiet --disable-pip-version-check "$here"/dist/fleetgym-*.whl

# A folder of a user's, with packages of their own under names that the checkout has.
mkdir -p "$place/elsewhere" && cd "$place/elsewhere"
mkdir baselines papers tools && touch {baselines,papers,tools}/__init__.py

echo "== without fleet-v1: the error says how to get it"
if "$bin/fleetgym" list fleet-v1/dev 2>missing.txt; then echo "fleet-v1 was not expected here" >&2; exit 1; fi
grep -F "pip install 'fleetgym[fleet-v1]'" missing.txt
"$bin/python" -m pip install --quiet --disable-pip-version-check "$here"/dist/fleetgym_fleet_v1-*.whl

echo "== doctor, an episode, the standard set"
"$bin/python" -m fleetgym doctor
"$bin/fleetgym" run fleet-v0/toy/two-pools --agent hold --scenario 0
"$bin/fleetgym" list fleet-v1/sample | tail -n 3
"$bin/fleetgym" compare hold agh-rolling --suite fleet-v1/test/ou-s-201 --scenarios 0

echo "== the preview"
if "$bin/fleetgym" list fleet-v2/dev 2>missing.txt; then echo "fleet-v2 was not expected here" >&2; exit 1; fi
"$bin/python" -m pip install --quiet --disable-pip-version-check "$here"/dist/fleetgym_fleet_v2-*.whl
"$bin/fleetgym" compare hold margin --suite fleet-v2/test/ou-v2-s-01 --scenarios 0 --relative-to best-in-run

echo "== the README's agent"
"$bin/python" - "$here/README.md" <<'PYTHON'
import pathlib, re, sys

code = next(b for b in re.findall(r"```python\n(.*?)```", pathlib.Path(sys.argv[1]).read_text(), re.S) if "class MyAgent" in b)
pathlib.Path("my_agent.py").write_text(code)
PYTHON
"$bin/fleetgym" check-agent my_agent.py:MyAgent
"$bin/fleetgym" compare my_agent.py:MyAgent hold agh --suite fleet-v0/dev/ou-s-001 --scenarios 0

"$bin/python" - <<PYTHON
import pathlib
import baselines, fleetgym, gymnasium
from fleetgym.agents.registry import agent_entries, load_target

assert not pathlib.Path(fleetgym.__file__).is_relative_to("$here"), fleetgym.__file__
assert pathlib.Path(baselines.__file__).is_relative_to("$place/elsewhere")
ours = [entry for entry in agent_entries().values() if entry.is_reference]
assert len([load_target(entry.target) for entry in ours]) >= 24
env = gymnasium.make("fleetgym:FleetAlloc-v0")
env.reset(options={"scenario": 0})
windows, done = 0, False
while not done:
    _, _, done, _, _ = env.step(env.action_space.sample())
    windows += 1
print("one episode from the wheel:", windows, "windows;", len(ours), "reference agents")
PYTHON
# The sdist builds the same package.
tar -xzf "$here"/dist/fleetgym-*.tar.gz -C "$place"
test -f "$place"/fleetgym-*/fleetgym/model/instance.py
test -f "$place"/fleetgym-*/instances/manifest.json
