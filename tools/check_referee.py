"""Check days and replicas with NVIDIA's simulator of engines; write ``docs/referee.md``.

    python -m tools.check_referee --play     # the missing cells of docs/data/referee/cells.jsonl; resumes
    python -m tools.check_referee            # the page from the cells, in seconds

Playing needs ``ai-dynamo-runtime`` (the extra referee) and ``aiconfigurator-core`` 0.12.0, NVIDIA's tables of
operators. A cell is a day of an agent, of which some windows are replayed, or the capacity of a replica.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.interpolate import RegularGridInterpolator
from scipy.stats import kendalltau

from fleetgym.capacity.simulation import referee
from fleetgym.capacity.simulation.window import PlayedWindow, played_windows, replaced_terms
from fleetgym.cli.process import run_program
from fleetgym.families import engines
from fleetgym.families.draft import fits, requests_of
from fleetgym.families.generate import generate, stored_scenarios
from fleetgym.families.plans import FAMILIES
from fleetgym.files.documents import write_atomically
from fleetgym.hardware import catalog
from fleetgym.hardware.configurations.homogeneous import deployment_of
from fleetgym.hardware.performance import gpu_rates, roofline
from fleetgym.hardware.performance.coefficients import Deployment
from fleetgym.hardware.performance.roofline import RooflineOptions
from fleetgym.kernels.queueing import wait_exceeds
from fleetgym.model.instance import Affine, Instance
from fleetgym.model.instance_files import write_instance
from fleetgym.runtime.programs import program
from tools.make_data.catalog import GPU_NAMES
from tools.make_data.operators import ENGINES
from tools.make_data.operators import MODELS as OPERATORS
from tools.markdown import rewrite, table

PAGE = Path("docs/referee.md")
CELLS = Path("docs/data/referee/cells.jsonl")
AGENTS = ("lookahead", "descent", "margin", "agh-rolling", "queueing-rolling", "dynamo", "llm-d", "hold")
#: Families of which agents are ranked, with times of version 2, and those of version 1 beside them.
RANKED, OLD = ("ou-v2", "drop-v2", "tail-v2"), ("ou", "drop", "tail")
#: Days of each family, and their windows that are replayed: seconds of each that warm up, and as many that count.
SEEDS = (1001, 1002, 1003)
WINDOWS, PART_S = range(18, 288, 36), 150.0
GPUS = ("L40S", "A100-80GB", "H100", "H200", "B200")
SYSTEMS = {gpu: system for system, gpu in GPU_NAMES.items() if gpu in GPUS}
MODELS = {ours: theirs for theirs, ours in OPERATORS.items() if not catalog.model(ours).experts}
MODES = {"fp16": "bfloat16", "fp8": "fp8"}
LIKE = {"A100-40GB": "A100-80GB"}
REPLICAS = [("Llama-3.1-8B", p, n) for p in ("fp16", "fp8") for n in (1, 2)] + [
    ("Qwen3-32B", "fp8", 2),
    ("Llama-3.1-70B", "fp8", 4),
    ("Llama-3.1-70B", "fp8", 8),
]
#: Whose step times the simulator gets; with the last, the environment has them, too.
TIMES = {"roofline": "own", "operators": "operators", "replanned": "operators, replanned"}
LATE = 0.01
TTFT_S, PROMPTS = 4.0, 12.0  # the deadline, and how many mean prompts it leaves time for at least

Cell = Mapping[str, Any]


# -- times of measured operators


def operator_table(
    deployment: Deployment, most_tokens: float, overlap: float = 1.0
) -> referee.StepTable | None:
    """Return the times of NVIDIA's operators with what the host adds, or None where they were not measured.

    In a pass with tokens, prompts take `overlap` of their time alone.
    """
    from aiconfigurator_core.sdk.engine import EngineHandle

    gpu = LIKE.get(deployment.gpu.name, deployment.gpu.name)
    mode = MODES.get(deployment.precision)
    if (
        gpu not in SYSTEMS
        or deployment.model.name not in MODELS
        or mode is None
        or deployment.pipeline_parallel > 1
    ):
        return None
    for engine in ENGINES:
        try:
            made = EngineHandle.compile(
                MODELS[deployment.model.name],
                SYSTEMS[gpu],
                engine,
                tp_size=deployment.tensor_parallel,
                gemm_quant_mode=mode,
                kvcache_quant_mode="bfloat16",
                fmha_quant_mode="bfloat16",
            )
            return _tabulated(deployment, most_tokens, made, overlap)
        except (ValueError, RuntimeError, KeyError) as error:  # the tables lack it
            logging.info("%s %s: %s", deployment, engine, error)
    return None


def _tabulated(deployment: Deployment, most_tokens: float, made: Any, overlap: float) -> referee.StepTable:
    host = gpu_rates.engine_times(deployment.model)
    batch, lengths = 2.0 ** np.arange(9), np.geomspace(64.0, 32768.0, 10)
    steps = [[made.predict_decode_latency(int(n), int(c)) / 1000.0 for c in lengths] for n in batch]
    at = RegularGridInterpolator((np.log(batch), np.log(lengths)), np.array(steps))
    held, context = referee.grid(1.0, most_tokens), referee.grid(1.0, 32768.0)
    n = np.clip(held[:, None] / context, 1.0, batch[-1])
    place = np.stack(np.broadcast_arrays(np.log(n), np.log(np.maximum(context, lengths[0]))), axis=-1)
    prompt = np.geomspace(32.0, 32768.0, 11)
    prompt_s = np.array([made.predict_prefill_latency(1, int(h)) for h in prompt]) / 1000.0
    return referee.StepTable(
        prompt_tokens=prompt,
        prompt_s=overlap * prompt_s,
        alone_s=prompt_s + host.first_s,
        held_tokens=held,
        context=context,
        step_s=at(place) + host.layer_s * deployment.model.layers + host.sequence_s * n,
    )


# -- cells


def capacity_cells(known: set[str]) -> Iterator[Cell]:
    """Yield rates at which 1 % of a replica's requests are late: by formula, and replayed on two tables of times."""
    token = fits()["tokens"]["azure_conv"]
    lengths = np.array([token[k] for k in ("input_tokens", "output_tokens", "input_cv2", "output_cv2")])
    for gpu in GPUS:
        for model, precision, degree in REPLICAS:
            key = f"capacity {gpu} {model} {precision} TP{degree}"
            deployment = Deployment(
                model=catalog.model(model), gpu=catalog.gpu(gpu), precision=precision, tensor_parallel=degree
            )
            tokens = roofline.kv_capacity_gb(deployment) / gpu_rates.kv_gb_per_token(deployment)
            if key in known or tokens < 20.0 * lengths[:2].sum():
                continue
            operators = operator_table(deployment, tokens, gpu_rates.engine_times(deployment.model).prompt)
            if operators is None:
                continue
            options = RooflineOptions(coefficients=3)
            at_once, formula, ttft_s = _formula(deployment, lengths, options, tokens)
            if formula < 1e-6:  # 1 % of the prompts are late by their length alone
                continue
            both = (operators, referee.roofline_table(deployment, options, tokens))
            found = [_replayed(times, int(tokens), at_once, lengths, formula, ttft_s) for times in both]
            yield {
                "cell": key, "kind": "capacity", "gpu": gpu, "model": model, "precision": precision,
                "tp": degree, "at_once": at_once, "formula": formula, "operators": found[0], "roofline": found[1],
            }  # fmt: skip


def _formula(
    deployment: Deployment, lengths: np.ndarray, options: RooflineOptions, tokens: float
) -> tuple[int, float, float]:
    """Return the requests at once of an engine that keeps 100 ms a token, its rate at 1 % late, and the deadline."""
    requests = requests_of(lengths, 0.03, deployment.model.name, deployment.precision)
    a, b = requests.input_tokens, requests.output_tokens
    low, high = 1, min(256, int(tokens / (1.1 * (a + b / 2.0))))

    def pair(n: int) -> Any:
        return roofline.pair(deployment, requests, options, at_once=n)

    def keeps(n: int) -> bool:
        found = pair(n)
        return (found.service_s.at(a, b) - found.prefill_s.at(a, b)) / b <= FAMILIES["ou-v2"].tpot_slo_s

    while high - low > 1 and not keeps(high):
        middle = (low + high) // 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    n = high if keeps(high) else low
    found, law = pair(n), engines.laws(lengths)[0]
    service, prefill = found.service_s.at(a, b), found.prefill_s
    ttft_s = max(TTFT_S, PROMPTS * prefill.at(a, b))
    limit = (ttft_s - prefill.base) / (prefill.per_input_token * a)
    own = float(law.survival(limit))
    slack = ttft_s - prefill.base - prefill.per_input_token * a * float(law.mean_below(limit))
    slowest, fastest = 0.0, n / service
    for _ in range(40):
        rate = 0.5 * (slowest + fastest)
        late = own + (1.0 - own) * wait_exceeds(n, rate, service, found.service_cv2, 1.0, slack)
        slowest, fastest = (rate, fastest) if late < LATE else (slowest, rate)
    return n, slowest, ttft_s


def _replayed(
    times: referee.StepTable, tokens: int, at_once: int, lengths: np.ndarray, guess: float, ttft_s: float
) -> float:
    """Return the rate at which 1 % of the requests are late in the replay; the same requests, faster or slower."""
    engine = referee.Engine(1, tokens // referee.BLOCK, at_once, times)
    rng = np.random.default_rng(7)
    count = 6000
    gaps = rng.exponential(1.0, count)
    prompt, output = (
        np.maximum(1.0, np.round(mean * law.draw(rng, count)))
        for mean, law in zip(lengths[:2], engines.laws(lengths), strict=True)
    )

    def late(rate: float) -> float:
        at = np.cumsum(gaps) / rate
        window = (at // 300.0).astype(int)
        ones = np.zeros(count, dtype=int)
        drawn = referee.Requests(at, window, ones, ones, prompt, output)
        ttft, _ = referee.run(
            engine, drawn, np.ones(count, dtype=bool), np.ones(window[-1] + 1, dtype=int), 300.0
        )
        return float((ttft[count // 6 :] > ttft_s).mean())

    low, high = 0.2 * guess, 5.0 * guess
    for _ in range(10):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if late(middle) < LATE else (low, middle)
    return (low * high) ** 0.5


def day_cells(
    known: set[str], families: Sequence[str], agents: Sequence[str], times: str = "operators"
) -> Iterator[Cell]:
    """Yield an agent's windows on a generated day: cost and late share by the environment, and replayed.

    `times` says whose step times the simulator gets: measured operators', or the roofline's. Where days are replanned,
    the environment knows the operators' times, too.
    """
    with tempfile.TemporaryDirectory() as folder:
        for family in families:
            for seed in SEEDS:
                path = Path(folder, f"{family}-s-{seed}.json")
                for agent in agents:
                    key = f"day {family}-s-{seed} {agent} {times}"
                    if key in known:
                        continue
                    if not path.exists():
                        instance = generate(family, "s", seed)
                        if times == "replanned":
                            instance = corrected(instance)
                        write_instance(path, instance, stored_scenarios(instance, seed, 1))
                    head = {"cell": key, "kind": "day", "times": times, "family": family}
                    yield head | {"seed": seed, "agent": agent} | _day(str(path), agent, times)


def corrected(instance: Instance) -> Instance:
    """Return an instance whose requests take as much longer or shorter as on measured operators, where there are some.

    A workload's times on a replica are scaled by the operators' over the roofline's, in a full batch of its requests.
    """
    assert instance.facts is not None
    table = instance.performance
    service, prefill = np.ones(table.compatible.shape), np.ones(table.compatible.shape)
    for c, configuration in enumerate(instance.configurations):
        gb = instance.facts.memory_gb(configuration.id)
        if gb is None or len(configuration.uses) > 1:
            continue
        tokens, deployment = gb / configuration.kv_gb_per_token, deployment_of(instance, c)
        theirs = operator_table(deployment, tokens, gpu_rates.engine_times(deployment.model).prompt)
        if theirs is None:
            continue
        ours = referee.roofline_table(deployment, RooflineOptions(coefficients=2), tokens)
        for i in np.flatnonzero(table.compatible[:, c]):
            a, b = instance.workloads[i].input_tokens, instance.workloads[i].output_tokens
            n = min(float(configuration.max_concurrency), tokens / (a + b / 2.0))
            prefill[i, c] = _first_s(theirs, a) / _first_s(ours, a)
            service[i, c] = _whole_s(theirs, n, a, b) / _whole_s(ours, n, a, b)
    return dataclasses.replace(
        instance,
        performance=dataclasses.replace(
            table,
            prefill_s=_scaled(table.prefill_s, prefill),
            service_s=_scaled(table.service_s, service),
            delay_s=_scaled(table.delay_s, service),
        ),
    )


def _first_s(times: referee.StepTable, a: float) -> float:
    """Return the time to the first token of a lone prompt of `a` tokens."""
    return float(np.interp(a, times.prompt_tokens, times.alone_s))


def _whole_s(times: referee.StepTable, n: float, a: float, b: float) -> float:
    """Return the time of a request of `a` and `b` tokens among `n` like it, each of whose prompts it waits for once."""
    context = a + b / 2.0
    step_s = RegularGridInterpolator((np.log(times.held_tokens), np.log(times.context)), times.step_s)
    tokens_s = b * float(step_s((np.log(n * context), np.log(context))))
    return _first_s(times, a) + tokens_s + n * float(np.interp(a, times.prompt_tokens, times.prompt_s))


def _scaled(affine: Affine, by: np.ndarray) -> Affine:
    return Affine(**{f.name: getattr(affine, f.name) * by for f in dataclasses.fields(affine)})


def _day(path: str, agent: str, source: str) -> dict[str, Any]:
    """Return what the windows of a day cost and how many are late by the environment, and replayed."""

    @functools.cache
    def times(deployment: Deployment, tokens: float) -> referee.StepTable:
        overlap = gpu_rates.engine_times(deployment.model).prompt
        found = None if source == "roofline" else operator_table(deployment, tokens, overlap)
        options = RooflineOptions(coefficients=2)
        return referee.roofline_table(deployment, options, tokens) if found is None else found

    rows = [_window(one, times) for one in played_windows(path, agent, 0, WINDOWS)]
    total = {name: sum(row[name] for row in rows) for name in rows[0]}
    rate = total.pop("rate")
    per_request = {name: total[name] / rate for name in total if not name.endswith(("usd", "requests"))}
    return total | per_request | {"windows": len(rows), "requests": int(total["requests"])}


def _window(one: PlayedWindow, times: Callable[[Deployment, float], referee.StepTable]) -> dict[str, float]:
    """Return sums over a window's requests, weighted by rates: late, seconds of delay, on measured operators."""
    part = dataclasses.replace(one, instance=dataclasses.replace(one.instance, window_s=PART_S))
    found = referee.replay(
        [part, part], warmup=1, seed=one.window, min_replications=1, max_replications=1, table=times
    )
    instance, rate = one.instance, one.conditions.rate_rps
    late = np.nan_to_num(found.replayed.mean - found.unserved)
    wait_s = np.nan_to_num(found.delay_s - found.predicted_delay_s)
    measured = [
        configuration.model in MODELS and deployment_of(instance, c).precision in MODES
        for c, configuration in enumerate(instance.configurations)
    ]
    return {
        "predicted_usd": float(one.result.cost_usd),
        "replayed_usd": float(replaced_terms(one, late, wait_s).sum()),
        "predicted_late": float(rate @ np.nan_to_num(found.predicted - found.unserved)),
        "replayed_late": float(rate @ late),
        "predicted_delay_s": float(rate @ np.nan_to_num(found.predicted_delay_s)),
        "replayed_delay_s": float(rate @ np.nan_to_num(found.delay_s)),
        "measured_share": float(rate @ one.result.routing @ measured),
        "requests": float(found.requests.sum()),
        "rate": float(rate.sum()),
    }


def play(path: Path, kinds: Sequence[str]) -> None:
    """Add the cells that are missing, one line each."""
    known = {cell["cell"] for cell in read(path)}
    path.parent.mkdir(parents=True, exist_ok=True)
    sources = {
        "capacity": lambda: capacity_cells(known),
        "days": lambda: day_cells(known, RANKED, AGENTS),
        "own": lambda: day_cells(known, RANKED, AGENTS, "roofline"),
        "replanned": lambda: day_cells(known, RANKED, AGENTS, "replanned"),
        "old": lambda: day_cells(known, OLD, ("margin",)),
    }
    for kind in kinds:
        for cell in sources[kind]():
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({k: _digits(v) for k, v in cell.items()}) + "\n")
            print(cell["cell"], flush=True)


def _digits(value: Any) -> Any:
    return float(f"{value:.5g}") if isinstance(value, float) else value


def read(path: Path) -> list[dict[str, Any]]:
    """Return the cells of a file, none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# -- the page


def written(cells: Sequence[Cell]) -> str:
    """Return the tables of the page."""
    days = [cell for cell in cells if cell["kind"] == "day"]
    ranked = [cell for cell in days if cell["family"] in RANKED]
    old = [cell for cell in days if cell["family"] in OLD]
    return "\n\n".join(
        [
            "## Capacity of a replica\n",
            _capacity([cell for cell in cells if cell["kind"] == "capacity"]),
            "## Agents\n",
            _ranking(ranked),
            _agents(ranked),
            "## Days of the first version\n",
            _old(old),
        ]
    )


def _capacity(cells: Sequence[Cell]) -> str:
    """Return fleetgym's rate over the referee's by GPU type and TP, each a geometric mean over models."""
    rows = []
    for gpu in dict.fromkeys(cell["gpu"] for cell in cells):
        for tp in sorted({cell["tp"] for cell in cells if cell["gpu"] == gpu}):
            here = [cell for cell in cells if cell["gpu"] == gpu and cell["tp"] == tp]
            ratios = {
                name: np.array([cell["formula"] / cell[name] for cell in here])
                for name in ("roofline", "operators")
            }
            rows.append(
                [
                    gpu,
                    tp,
                    len(here),
                    *(f"{np.exp(np.log(r).mean()):.2f}" for r in ratios.values()),
                    f"{ratios['operators'].min():.2f} to {ratios['operators'].max():.2f}",
                ]
            )
    head = ["GPU", "TP", "replicas", "same step times", "measured operators", "of single replicas"]
    return table(head, rows)


def _ranking(cells: Sequence[Cell]) -> str:
    """Return by step times and family how alike both rank agents, and how far their costs are apart."""
    rows = []
    for times, family in ((t, f) for t in TIMES for f in RANKED):
        here = [cell for cell in cells if (cell["times"], cell["family"]) == (times, family)]
        costs = _costs(here)
        if len(costs) < 2:
            continue
        total = costs.sum(axis=1)
        ratio = costs[..., 1] / costs[..., 0]
        share = 0.0 if times == "roofline" else np.mean([cell["measured_share"] for cell in here])
        rows.append(
            [
                TIMES[times],
                f"`{family}`",
                len(total),
                f"{kendalltau(total[:, 0], total[:, 1]).statistic:.2f}",
                f"{_near_ties(total):.2f}",
                f"{np.median(ratio):.2f}",
                f"{ratio.min():.2f} to {ratio.max():.2f}",
                f"{np.mean(np.abs(np.log(ratio)) < np.log(1.1)):.0%}".replace("%", " %"),
                f"{share:.0%}".replace("%", " %"),
            ]
        )
    head = [
        "step times",
        "family",
        "agents",
        "tau",
        "but for ties of 2 %",
        "median cost, replayed over predicted",
    ]
    return table([*head, "agents' days", "within 10 %", "on operators"], rows, 2)


def _costs(cells: Sequence[Cell]) -> np.ndarray:
    """Return predicted and replayed USD by agent and day, (agents, days, 2), of agents that have all days."""
    by_agent: dict[str, dict[int, Cell]] = {}
    for cell in cells:
        by_agent.setdefault(cell["agent"], {})[cell["seed"]] = cell
    whole = [days for days in by_agent.values() if len(days) == len(SEEDS)]
    return np.array(
        [[[days[seed][f"{k}_usd"] for k in ("predicted", "replayed")] for seed in SEEDS] for days in whole]
    )


def _near_ties(total: np.ndarray) -> float:
    """Return the share of ordered pairs that agree less the share that do not, of pairs over 2 % apart."""
    agree = [
        np.sign(a[0] - b[0]) * np.sign(a[1] - b[1])
        for k, a in enumerate(total)
        for b in total[:k]
        if abs(np.log(a[0] / b[0])) > 0.02
    ]
    return float(np.mean(agree)) if agree else float("nan")


def _agents(cells: Sequence[Cell]) -> str:
    """Return late shares and mean delays of each agent, where environment and simulator have the same times."""
    rows = []
    for agent in AGENTS:
        own, replanned = (
            {
                (cell["family"], cell["seed"]): cell
                for cell in cells
                if (cell["agent"], cell["times"]) == (agent, times)
            }
            for times in ("roofline", "replanned")
        )
        both = sorted(set(own) & set(replanned))
        if not both:
            continue
        shown = [[days[day] for day in both] for days in (own, replanned)]
        late = [f"{100 * _mean(days, f'{k}_late'):.2f}" for days in shown for k in ("predicted", "replayed")]
        delay = [f"{_mean(days, f'{k}_delay_s'):.2f}" for days in shown for k in ("predicted", "replayed")]
        rows.append([f"`{agent}`", len(both), *late, *delay])
    head = ["agent", "days"]
    for what in ("late %", "delay s"):
        head += [f"own times: {what}", "replayed", f"replanned: {what}", "replayed"]
    return table(head, rows)


def _mean(cells: Sequence[Cell], field: str) -> float:
    return float(np.average([c[field] for c in cells], weights=[c["requests"] for c in cells]))


_LATE = ("predicted_late", "replayed_late")
_DELAY = ("predicted_delay_s", "replayed_delay_s")


def _old(cells: Sequence[Cell]) -> str:
    rows = [
        [
            f"`{cell['family']}-s-{cell['seed']}`",
            f"`{cell['agent']}`",
            *(f"{100 * cell[k]:.2f}" for k in _LATE),
            *(f"{cell[k]:.1f}" for k in _DELAY),
        ]
        for cell in cells
    ]
    return table(["day", "agent", "late %", "replayed", "delay s", "replayed"], rows, 2)


def smoke(folder: Path) -> None:
    """Write the page elsewhere."""
    write_atomically(folder / PAGE.name, rewrite(PAGE, written(read(CELLS))).encode())


def main(argv: Sequence[str] | None = None) -> None:
    """Play what is missing, or write the page."""
    parser = program(
        __doc__, writes="docs/referee.md, and its cells.", takes="Three CPU hours to play.", smoke=smoke
    )
    parser.add_argument("--play", action="store_true", help="play the missing cells first")
    options = parser.parse_args(argv)
    if options.play:
        play(CELLS, ("capacity", "days", "own", "replanned", "old"))
    write_atomically(PAGE, rewrite(PAGE, written(read(CELLS))).encode())


if __name__ == "__main__":
    run_program(main)
