"""Choose SLOs that some configurations meet and others violate."""

from __future__ import annotations

import numpy as np

from fleetgym.families.draft import SizePlan, effective_params_b
from fleetgym.families.plans import request_class
from fleetgym.families.text import six
from fleetgym.hardware.performance import delay
from fleetgym.model.instance import Performance


def error_slos(plan: SizePlan, precision: str = "fp8") -> np.ndarray:
    """Return SLOs that the smallest good model just keeps at a precision, and breaks with fewer bits."""
    slos = []
    for name in plan.classes:
        request = request_class(name)
        wanted = request.model if request.model in plan.models else _substitute(request.model, plan)
        slos.append(1.02 * delay.error_share(request.base_error, effective_params_b(wanted), precision))
    return six(slos)


def _substitute(model: str, plan: SizePlan) -> str:
    """Return the model of the plan whose quality is nearest."""
    target = np.log(effective_params_b(model))
    return min(plan.models, key=lambda name: abs(np.log(effective_params_b(name)) - target))


def delay_slos(
    table: Performance, delay_s: np.ndarray, error_slo: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return SLOs a little above the median delay of the columns that are good enough."""
    good = table.compatible & (table.error <= error_slo[:, None])
    medians = np.array([np.quantile(delay_s[i][good[i]], 0.5) for i in range(len(delay_s))])
    return six(medians * rng.uniform(1.1, 1.4, len(medians)))
