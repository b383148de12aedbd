"""A replica step by step: who is in the batch, how long the step takes, when each request has its tokens.

Written for tests, from what the roofline says a step costs, and sharing no code with what it checks.
"""

from __future__ import annotations

from collections import deque

import numpy as np


def token_times(
    step, arrivals_s: np.ndarray, inputs: np.ndarray, outputs: np.ndarray, slots: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the time to the first token, and that per token after it, of each request (NaN of one token).

    Parameters
    ----------
    step : StepTime
        Constants of a step.
    arrivals_s, inputs, outputs : ndarray, shape (n,)
        Requests in order of arrival; the prompt tokens to be computed, and the tokens to be generated.
    slots : int
        Most requests at once.
    """
    waiting = deque(range(len(arrivals_s)))
    first, last = np.full(len(arrivals_s), np.nan), np.full(len(arrivals_s), np.nan)
    batch: list[int] = []
    ready: dict[int, float] = {}  # when the prompt of a request is computed
    made = np.zeros(len(arrivals_s), dtype=int)
    now = 0.0
    while waiting or batch:
        if not batch:
            now = max(now, arrivals_s[waiting[0]])
        prompts = 0.0
        while waiting and len(batch) < slots and arrivals_s[waiting[0]] <= now:
            k = waiting.popleft()
            batch.append(k)
            ready[k] = now + step.first_base_s + step.first_token_s * inputs[k]
            ready[k] += step.first_attention_s * inputs[k] ** 2
            prompts += step.prompt_s + step.prefill_s * inputs[k] + step.attention_s * inputs[k] ** 2
        generating = [k for k in batch if ready[k] <= now]
        if not generating:
            now = min(ready[k] for k in batch)
            continue
        context = sum(inputs[k] + made[k] for k in generating)
        now += step.base_s + len(batch) * step.sequence_s + context * step.context_s / 8192.0
        now += prompts
        for k in generating:
            made[k] += 1
            if made[k] == 1:
                first[k] = now
            last[k] = now
        batch = [k for k in batch if made[k] < outputs[k]]
    with np.errstate(invalid="ignore", divide="ignore"):
        return first - arrivals_s, np.where(outputs > 1, (last - first) / (outputs - 1), np.nan)
