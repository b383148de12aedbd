#!/usr/bin/env bash
# Install the project into fresh environments outside the checkout, and run the smoke set below in each.
#
#   tools/verify_versions.sh lowest 3.11          the oldest versions that pyproject.toml states
#   tools/verify_versions.sh newest 3.12          the newest versions that there are
#
# The Python is taken from the variable PYTHON (if it is that version), PATH, pyenv or uv. Where there is none, the
# script says so and ends well. The extras `rl` (PyTorch) and `fleet-v1` (data only) are not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
kind=$1 version=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
export SDL_VIDEODRIVER=dummy MPLBACKEND=agg

# --- the smoke set: a file of each room that meets the dependencies, seconds each; no slow processes ---
tests=(
    tests/kernels/test_simd.py tests/envs/test_env.py tests/envs/test_vector_env.py
    tests/agents/test_rolling.py tests/envs/test_golden.py tests/reference/test_twin.py tests/scoring/test_scoring.py tests/model/test_library.py
    tests/bounds/test_highs.py tests/envs/test_rendering.py tests/leaderboard/test_report.py tests/evaluation/test_executors.py
    tests/bounds/test_bounds.py::test_gap_on_toys tests/evaluation/test_pytest_plugin.py::test_one_process_writes_the_bytes_of_evaluate
    "tests/families/test_fleet_v1.py::test_a_sample_is_made_again[fleet-v1/dev/multi-s-101]"
)

commands() {  # what a user does first, in a folder of their own
    fleetgym warmup
    fleetgym doctor
    python - <<'PYTHON'
import gymnasium
import numpy as np

import fleetgym
from fleetgym.bounds.hindsight import hindsight_bound

toy = "fleet-v0/toy/two-pools"
for name in ("FleetAlloc-v0",):
    env = gymnasium.make(f"fleetgym:{name}", instance=toy)
    env.reset(seed=0)
    windows, done = 0, False
    while not done:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        windows, done = windows + 1, terminated or truncated
    print("one episode:", name, windows, "windows")
batch = gymnasium.make_vec("fleetgym:FleetAlloc-v0", num_envs=8, instance=toy)
batch.reset(seed=0)
batch.step(batch.action_space.sample())
env = gymnasium.make("fleetgym:FleetAlloc-v0", instance=toy, render_mode="rgb_array")
env.reset(seed=0)
assert env.render().dtype == np.uint8
print("bound:", hindsight_bound(fleetgym.load_instance(toy), fleetgym.load_scenarios(toy)[0]).bound_usd, "USD")
rng = np.random.default_rng(0)
with open("requests.csv", "w") as stream:
    print("arrival,input_tokens,output_tokens", file=stream)
    for at in np.sort(rng.uniform(0, 3600, 2000)):
        print(f"{at:.3f},{rng.integers(10, 2000)},{rng.integers(10, 400)}", file=stream)
PYTHON
    fleetgym compare hold agh-rolling milp --suite fleet-v0/toy/two-pools --out toy.jsonl
    fleetgym report toy.jsonl
    fleetgym import-trace requests.csv --slo ttft=2,delay=20,error=0.05 --scale 20
    fleetgym plan requests.json --agent milp --days 5 --plot plan.png
}

find_python() {  # 3.12: print the path of an interpreter that runs
    local candidates=() found
    [ -z "${PYTHON:-}" ] || candidates+=("$PYTHON")
    candidates+=("python$1" python3)
    for found in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do candidates+=("$found"); done
    if command -v uv > /dev/null && found=$(uv python find "$1" 2> /dev/null); then candidates+=("$found"); fi
    for found in "${candidates[@]}"; do  # -m venv: Debian's Python may come without
        "$found" -c "import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '$1')" 2> /dev/null || continue
        echo "$found"
        return
    done
    return 1
}

requirements() {  # "lowest" "name>=1.2" becomes "name==1.2"; of the extra `bounds` only where it is asked for
    python - "$here/pyproject.toml" "$kind" "$1" <<'PYTHON'
import re, sys, tomllib

path, kind, part = sys.argv[1:]
with open(path, "rb") as stream:
    project = tomllib.load(stream)["project"]
extras = project["optional-dependencies"]
if part == "bounds":
    found = extras["bounds"]
else:
    tests = [line for line in extras["dev"] if re.match("pytest|hypothesis|mpmath|jsonschema|moviepy|pyarrow", line)]
    others = [extras[name] for name in ("report", "render", "dask", "docs")]
    found = sum(others, project["dependencies"] + tests)
print(*(line.replace(">=", "==") if kind == "lowest" else line for line in dict.fromkeys(found)), sep="\n")
PYTHON
}

install() { python -m pip install --quiet "$@"; }

try() (  # an interpreter, in a subshell: PATH is that of the new environment
    set -e
    "$1" -m venv "$place/$2"
    PATH=$place/$2/bin:$PATH
    export FLEETGYM_CACHE_DIR=$place/$2/kernels
    requirements all > "$place/$2/wanted.txt"
    install -r "$place/$2/wanted.txt" -e "$here"
    mkdir "$place/$2/elsewhere"
    pip list 2> /dev/null | grep -E "^(gymnasium|numpy|scipy|numba|pandas|highspy|matplotlib|distributed|pygame|pillow) "
    cd "$place/$2/elsewhere"
    commands
    cd "$here"
    python -m pytest -q --no-header -n "${WORKERS:-2}" --dist worksteal -p no:cacheprovider \
        -m "not slow and not full and not rl and not smoke" "${tests[@]}"
    if [ "$kind" = lowest ]; then
        python -c "
from fleetgym.files.errors import FleetgymError
from fleetgym.runtime.highs import make_solver
try:
    make_solver(solver='hipo')
except FleetgymError as error:
    assert 'pip install' in str(error), error
    print('without the extra bounds:', error)
else:
    raise SystemExit('HiPO was not expected here')
"
    fi
    requirements bounds > "$place/$2/bounds.txt"
    install -r "$place/$2/bounds.txt"
    python -m pytest -q --no-header -p no:cacheprovider tests/bounds/test_highs.py tests/bounds/test_bounds.py::test_solvers_agree
)

if ! interpreter=$(find_python "$version"); then
    echo "== Python $version, $kind versions: SKIPPED, there is no Python $version here"
    exit 0
fi
echo "== Python $version, $kind versions: $interpreter"
SECONDS=0
try "$interpreter" "$kind-$version"
echo "== Python $version, $kind versions: passed in $SECONDS s"
