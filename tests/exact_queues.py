"""From renewal arrivals and exponential servers to the law of the wait: the exact answer for GI/M/c, many digits."""

from __future__ import annotations

import math

import mpmath


def gi_m_c(servers: int, load: float, arrival_cv2: float) -> tuple[float, float]:
    """Return P(W > 0) and the rate r with P(W > t) = P(W > 0) exp(-r t), for gamma gaps and unit mean service.

    L. Takács, Introduction to the Theory of Queues (1962), chapter 2, theorem 3. `load` is per server; a cv2 of
    0 stands for equal gaps. With Poisson arrivals c (1 - load) must not be whole: the formula is 0/0 there.
    """
    with mpmath.workdps(60):
        rate, cv2 = mpmath.mpf(load) * servers, mpmath.mpf(arrival_cv2)

        def transform(s: mpmath.mpf) -> mpmath.mpf:
            return mpmath.exp(-s / rate) if cv2 == 0 else (1 + s * cv2 / rate) ** (-1 / cv2)

        low, high = mpmath.mpf(0), 1 - mpmath.mpf(10) ** -20
        for _ in range(150):  # the root of omega = transform(c (1 - omega)) below 1
            omega = (low + high) / 2
            low, high = (omega, high) if transform(servers * (1 - omega)) > omega else (low, omega)
        total, product = 1 / (1 - omega), mpmath.mpf(1)
        for j in range(1, servers + 1):
            phi = transform(mpmath.mpf(j))
            product *= phi / (1 - phi)
            ratio = (servers * (1 - phi) - j) / (servers * (1 - omega) - j)
            total += math.comb(servers, j) / (product * (1 - phi)) * ratio
        return float(1 / total / (1 - omega)), float(servers * (1 - omega))
