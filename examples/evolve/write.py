"""Search without a language model: a scripted writer changes the two numbers of the best program so far.

FLEETGYM_EVOLVE_BOX=0 python examples/evolve/write.py 20
"""

import random
import re
import sys
import tempfile
from pathlib import Path

from evaluator import _metrics, evaluate_stage1, evaluate_stage2

INITIAL = Path(__file__).with_name("initial.py")


def rewritten(program: str, rng: random.Random) -> str:
    """Return a program with other margins; now and then one that does not work, as writers do."""
    lower, upper = map(float, re.findall(r"= ([\d.]+), ([\d.]+)", program)[0])
    lower = max(0.5, lower + rng.gauss(0.0, 0.2))
    upper = max(lower, upper + rng.gauss(0.0, 0.2))
    changed = re.sub(r"= [\d.]+, [\d.]+", f"= {lower:.3f}, {upper:.3f}", program)
    return changed if rng.random() > 0.1 else changed.replace("self.sizer.target", "self.sizer.targt")


def main(count: int) -> None:
    """Write and score programs, print each score, and play the second stage with the best."""
    rng, best = random.Random(0), (0.0, INITIAL.read_text(encoding="utf-8"))
    path = Path(tempfile.mkdtemp()) / "program.py"
    for k in range(count):
        program = best[1] if k == 0 else rewritten(best[1], rng)
        path.write_text(program, encoding="utf-8")
        result = evaluate_stage1(str(path))
        score = _metrics(result)["combined_score"]
        artifacts = result["artifacts"] if isinstance(result, dict) else result.artifacts
        print(f"{k:3d}  {score:.4f}  {artifacts.get('failure', '')}", flush=True)
        best = max(best, (score, program))
    path.write_text(best[1], encoding="utf-8")
    print(f"stage 2: {_metrics(evaluate_stage2(str(path)))['combined_score']:.4f}\n{path}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
