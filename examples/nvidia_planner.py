"""Let the planner of NVIDIA Dynamo choose how many replicas a model has: its own classes, as published.

    pip install ai-dynamo-runtime==1.6.1 filterpy scikit-learn kubernetes aiohttp pyyaml prometheus-client
    pip install --no-deps ai-dynamo==1.6.1    # it pins aisimulate, which PyPI lacks
    fleetgym evaluate examples/nvidia_planner.py:NvidiaPlanner --instances fleet-v0/dev/ou-s-001

Two names of `aisimulate` have stand-ins: its settings, and its estimate of a pass, which here comes from fleetgym's
step times. Throughput scaling and the Kalman predictor are NVIDIA's. An engine is a model in its cheapest
configuration, and in the next one where pools have no room.
"""

import dataclasses
import logging
import sys
import types

import numpy as np

from fleetgym.baselines.services import Room, Services
from fleetgym.hardware.configurations.homogeneous import deployment_of
from fleetgym.hardware.performance import roofline


@dataclasses.dataclass
class Settings:
    """Hold the settings of an estimate, which is known here."""

    model: str
    system: str
    backend: str
    worker_type: str
    estimation_mode: str
    tp: int = 1
    pp: int = 1
    estimator_config: dict = dataclasses.field(default_factory=dict)

    @classmethod
    def from_legacy_engine_config(cls, engine, worker_type, options):
        """Return settings without options."""
        return cls(engine["model_name"], engine["system_name"], engine["backend"], worker_type, "")


class ForwardPass:
    """Estimate an engine's pass from the step times of the configuration that `engine` names."""

    engine: roofline.StepTime

    @classmethod
    def best_available(cls, config):
        """Return the estimate of the engine that was named last."""
        found = cls()
        found.engine = cls.engine
        return found

    def diagnostics(self):
        """Say that nothing has to be learnt first."""
        return {"readiness": "ready", "source": "fleetgym"}

    def tune_with_fpms(self, iterations):
        """Learn nothing: the times are known."""

    def estimate_forward_pass_time_ms(self, ranks):
        """Return the time of a pass with so many prompt tokens, sequences, and tokens that they hold."""
        passes, step = ranks[0]["scheduled_requests"], self.engine
        prompt, n = passes["sum_prefill_tokens"], passes["num_decode_requests"]
        seconds = (step.prompt_s + step.prefill_s * prompt) * (prompt > 0)
        if n:
            seconds += step.per_output_token_s(n, passes["sum_decode_kv_tokens"] / n)
        return 1000.0 * seconds


for name, contents in {
    "pmdarima": {}, "prophet": {"Prophet": None}, "aisimulate_core": {},
    "aisimulate_core.sdk": {"ForwardPassPerfModelConfig": Settings, "RustForwardPassPerfModel": ForwardPass},
}.items():  # fmt: skip
    sys.modules.setdefault(name, types.ModuleType(name)).__dict__.update(contents)
logging.getLogger("dynamo").setLevel(logging.ERROR)

from dynamo.planner.config.planner_config import PlannerConfig  # noqa: E402
from dynamo.planner.core.load.predictors import KalmanPredictor  # noqa: E402
from dynamo.planner.core.state_machine import PlannerScalingState  # noqa: E402
from dynamo.planner.core.types import (  # noqa: E402
    EngineCapabilities,
    TrafficObservation,
    WorkerCapabilities,
    WorkerCounts,
)


class NvidiaPlanner:
    """Play NVIDIA Dynamo's planner, with its throughput scaling and its Kalman predictor."""

    def reset(self, view, *, seed):
        """Name each service's engine, and give the planner its times and SLOs."""
        self.view, instance, snapshot = view, view.instance, view.snapshot()
        self.services = Services(instance)
        orders = self.services.orders(snapshot, self.services.loads(snapshot))
        self.planners = []
        for numbers, order in zip(self.services.workloads, orders, strict=True):
            configuration, deployment = (
                instance.configurations[order[0]],
                deployment_of(instance, int(order[0])),
            )
            version = 1 if instance.stated is None else instance.stated.coefficients
            ForwardPass.engine = roofline.step_time(
                deployment, roofline.RooflineOptions(coefficients=version)
            )
            config = PlannerConfig(
                mode="agg", optimization_target="sla", enable_load_scaling=False, max_gpu_budget=-1,
                max_throughput_scaling_replicas=10_000, itl_ms=100.0,
                ttft_ms=1000.0 * min(instance.workloads[i].ttft_slo_s or 2.0 for i in numbers),
            )  # fmt: skip
            engine = EngineCapabilities(
                num_gpu=deployment.gpus, max_num_batched_tokens=8192, max_num_seqs=configuration.max_concurrency,
                max_kv_tokens=int(configuration.kv_capacity_gb / configuration.kv_gb_per_token),
            )  # fmt: skip
            state = PlannerScalingState(config, WorkerCapabilities(decode=engine))
            self.planners.append((state, KalmanPredictor(config)))

    def act(self, observation, info):
        """Return the action: each service's replicas for the interval to come."""
        view, snapshot = self.view, self.view.snapshot()
        loads = self.services.loads(snapshot)
        room = Room(snapshot, np.zeros(len(view.instance.configurations), dtype=int))
        rows = zip(
            self.planners, self.services.workloads, self.services.orders(snapshot, loads), loads, strict=True
        )
        for (state, predictor), numbers, order, load in rows:
            rate = view.conditions.rate_rps[numbers]
            predictor.add_data_point(float(rate.sum() * view.instance.window_s))
            if not len(order) or not rate.sum():
                continue
            workloads = [view.instance.workloads[i] for i in numbers]
            isl = rate @ [w.input_tokens for w in workloads] / rate.sum()
            osl = rate @ [w.output_tokens for w in workloads] / rate.sum()
            traffic = TrafficObservation(
                duration_s=view.instance.window_s,
                num_req=float(rate.sum()) * view.instance.window_s,
                isl=isl,
                osl=osl,
            )
            running = int(self.view.fleet[order].sum())
            state.begin_tick()
            state.observe_worker_counts(WorkerCounts(ready_num_decode=running))
            decision = state.advance_throughput_from_prediction(
                traffic, predicted_num_req=predictor.predict_next(), predicted_isl=float(isl),
                predicted_osl=float(osl), predicted_kv_hit_rate=None,
            )  # fmt: skip
            wanted = running if decision is None or decision.num_decode is None else decision.num_decode
            first = load[order[0]]
            room.grow(order, load, wanted / first if first > 0.0 else 0.0)
        return view.fleet_to_action(room.fleet)
