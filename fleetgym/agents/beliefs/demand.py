"""Sample demand: by filters of processes with public parameters, and by regressions on the history."""

from __future__ import annotations

import numpy as np

from fleetgym.agents.beliefs.draws import mirrored_normals, strata
from fleetgym.model.dynamics.demand import MIN_JUMP_LOG
from fleetgym.model.dynamics.scenario import LEVEL_KINDS, level_process, parameter
from fleetgym.model.instance import Instance

_FLOOR = 0.5  # requests: a window with fewer counts as this where a logarithm is taken
_LEAST = 0.05  # of the nominal rate: what regressions take for it where there is less


class ProcessBelief:
    """Track a process of `LEVEL_KINDS`, or the random walk ``grw``, from the counts of an episode.

    Given the jumps of a workload, its log level is a linear Gaussian process seen through noise, for which the Kalman
    filter is exact, if the logarithm of a count is taken as normal. So particles hold jumps only (Doucet, de Freitas,
    Murphy and Russell 2000, *Rao-Blackwellised particle filtering*). New jumps are proposed more often than they
    happen, and weighted back. Each workload has its own filter; what shocks have in common counts in what is drawn.

    Parameters
    ----------
    instance : Instance
        Its demand is of one of these kinds.
    particles : int
        For each workload.

    Notes
    -----
    The scored day of these processes does not follow on the history: it begins in the stationary law, or the walk at
    nominal demand.
    """

    SLOTS = 3  # jumps that hold at a time
    PROPOSED = 0.25  # share of the particles in which a jump is tried

    def __init__(self, instance: Instance, particles: int = 400):
        self.window_s = instance.window_s
        self.nominal = np.array([w.rate_rps for w in instance.workloads])
        count, process = len(self.nominal), instance.dynamics.demand
        self.dispersion = np.maximum(1.0, parameter(process, "dispersion", count))
        if process.kind == "grw":
            self.process, none = None, np.zeros(count)
            self.phi, self.shock_sd = np.ones(count), parameter(process, "sigma", count)
            self.start_sd = self.noise_sd = self.onset = none
            self.stop, self.common = np.ones(count), 0.0
        else:
            ou = self.process = level_process(process, count)
            self.phi = np.exp(-self.window_s / 60.0 / ou.ou_time_min)
            self.start_sd, self.noise_sd, self.common = ou.ou_sd, ou.noise_sd, ou.ou_common
            self.shock_sd = ou.ou_sd * np.sqrt(1.0 - self.phi**2)
            self.onset, self.stop = ou.onset_probability(self.window_s), ou.return_probability(self.window_s)
            self.log_mean = ou.log_mean(self.window_s)
        self.window = -1  # seen last
        self.rng = np.random.default_rng(0)
        shape = (count, particles)
        self.mean = np.zeros(shape)
        self.variance = self.start_sd**2 + 0.0
        self.jumps = np.zeros((*shape, self.SLOTS))
        held = self.onset * (1.0 - self.stop) / self.stop
        for slot in range(self.SLOTS):
            begun = self.rng.random(shape) < (held / (1.0 + held))[:, None]
            self.jumps[:, :, slot] = np.where(begun, self._sizes(self.rng.random(shape)), 0.0)
            held = held / (slot + 2)
        self.log_weight = np.zeros(shape)

    # -- what was seen

    def update(self, rate_rps: np.ndarray) -> None:
        """Take in the rates (I,) of one more window."""
        self.window += 1
        if self.window > 0:
            self._advance()
        requests = np.maximum(rate_rps * self.window_s, _FLOOR)
        noise = self.noise_sd**2 + self.dispersion / np.maximum(requests, self.dispersion)
        seen = np.log(requests / (self.nominal * self.window_s)) - self._base(self.window)
        seen += (
            0.5 * self.dispersion / np.maximum(requests, self.dispersion)
        )  # the mean of a count's logarithm
        total = self.variance + noise
        error = seen[:, None] - self.jumps.sum(axis=2) - self.mean
        self.log_weight += -0.5 * error**2 / total[:, None]
        gain = np.divide(self.variance, total, out=np.zeros_like(total), where=total > 0)
        self.mean += gain[:, None] * error
        self.variance = (1.0 - gain) * self.variance
        self._resample()

    def _advance(self) -> None:
        """Advance every particle by one window."""
        self.mean *= self.phi[:, None]
        self.variance = self.phi**2 * self.variance + self.shock_sd**2
        if not np.any(self.onset > 0):
            return
        shape = self.mean.shape
        self.jumps *= self.rng.random(self.jumps.shape) >= self.stop[:, None, None]
        tried = self.rng.random(shape) < self.PROPOSED
        odds = self.onset[:, None] / self.PROPOSED, (1.0 - self.onset[:, None]) / (1.0 - self.PROPOSED)
        self.log_weight += np.log(np.maximum(np.where(tried, *odds), 1e-12))
        slot = np.abs(self.jumps).argmin(axis=2)  # one that is free, if there is one
        i, n = np.nonzero(tried)
        self.jumps[i, n, slot[i, n]] = self._sizes(self.rng.random(shape))[i, n]

    def _resample(self) -> None:
        weights = np.exp(self.log_weight - self.log_weight.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        count = weights.shape[1]
        for i in np.flatnonzero(1.0 / (weights**2).sum(axis=1) < 0.5 * count):
            at = (np.arange(count) + self.rng.random()) / count
            kept = np.minimum(np.searchsorted(weights[i].cumsum(), at), count - 1)
            self.mean[i], self.jumps[i], weights[i] = self.mean[i, kept], self.jumps[i, kept], 1.0 / count
        self.log_weight = np.log(np.maximum(weights, 1e-300))

    def _base(self, window: np.ndarray | int) -> np.ndarray:
        """Return the part of the log level that is known in windows (n, 1) or in one: shape (n, I) or (I,)."""
        if self.process is None:
            return np.zeros(np.broadcast_shapes(np.shape(window), self.nominal.shape))
        return self.process.daily(window, self.window_s) - self.log_mean

    def _sizes(self, uniform: np.ndarray) -> np.ndarray:
        """Return jumps by their quantiles, (I, ...): half of them down."""
        if self.process is None:
            return np.zeros_like(uniform)
        spread = (self.process.jump_log_mean - MIN_JUMP_LOG).reshape(-1, *[1] * (uniform.ndim - 1))
        up = np.abs(2.0 * uniform - 1.0)
        return np.sign(uniform - 0.5) * (MIN_JUMP_LOG - spread * np.log1p(-np.minimum(up, 1.0 - 1e-12)))

    # -- what may come

    def sample(self, paths: int, windows: int, rng: np.random.Generator) -> np.ndarray:
        """Return rates of the windows that follow, (paths, windows, I) requests/s."""
        count = self.nominal.size
        chosen = self._chosen(strata(rng, paths, count))
        rows = np.arange(count)
        jumps = self.jumps[rows, chosen].copy()  # (paths, I, slots)
        shocks = mirrored_normals(rng, paths, windows + 1, count)
        noise = mirrored_normals(rng, paths, windows, count)
        counts = mirrored_normals(rng, paths, windows, count)
        ends, starts = rng.random((paths, windows, count, self.SLOTS)), rng.random((paths, windows, count))
        sizes = self._sizes(rng.random((count, paths, windows))).transpose(1, 2, 0)
        level = self.mean[rows, chosen] + np.sqrt(self.variance) * shocks[:, 0]
        if self.common > 0.0:
            shared = mirrored_normals(rng, paths, windows, 1)
            shocks[:, 1:] = np.sqrt(1.0 - self.common) * shocks[:, 1:] + np.sqrt(self.common) * shared
        base = self._base(self.window + 1 + np.arange(windows)[:, None])
        rates = np.empty((paths, windows, count))
        for t in range(windows):
            if self.window + t >= 0:  # the first window of an episode is drawn as it stands
                level = self.phi * level + self.shock_sd * shocks[:, t + 1]
                jumps *= ends[:, t] >= self.stop[:, None]
                p, i = np.nonzero(starts[:, t] < self.onset)
                jumps[p, i, np.abs(jumps[p, i]).argmin(axis=1)] = sizes[p, t, i]
            log_level = base[t] + level + jumps.sum(axis=2) + self.noise_sd * noise[:, t]
            rates[:, t] = self.nominal * np.exp(log_level)
        return _counted(rates * self.window_s, self.dispersion, counts) / self.window_s

    def _chosen(self, quantile: np.ndarray) -> np.ndarray:
        """Return the particle of each path and workload, by its quantile (paths, I) of the level."""
        weights = np.exp(self.log_weight)
        order = np.argsort(self.mean + self.jumps.sum(axis=2), axis=1)
        chosen = np.empty(quantile.shape, dtype=np.int64)
        for i in range(quantile.shape[1]):
            heap = weights[i, order[i]].cumsum()
            at = np.searchsorted(heap, quantile[:, i] * heap[-1])
            chosen[:, i] = order[i, np.minimum(at, heap.size - 1)]
        return chosen


def _counted(mean: np.ndarray, dispersion: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Return whole counts of a mean and an index of dispersion, by normal quantiles.

    The gamma of a negative binomial count by Wilson and Hilferty's cube root, which is good from a shape of about one.
    """
    shape = np.maximum(mean / dispersion, 1e-9)
    cube = 1.0 - 1.0 / (9.0 * shape) + normal / (3.0 * np.sqrt(shape))
    return np.rint(mean * np.maximum(0.0, cube) ** 3)


class HistoryBelief:
    """What follows, by regression on the history: for demand that is no process with parameters.

    How the log rate moves until some windows ahead is regressed on moving averages of the last ones, and on how the
    mean course of the history's other days moves: a ridge regression for each workload and horizon. A path adds the
    errors that these regressions made together from one past window on, at about the same time of the day.

    Parameters
    ----------
    instance : Instance
        Its history is what is regressed. Where days may be rolled by more than two hours, their course says nothing.
    horizon : int
        Most windows ahead.

    Notes
    -----
    Moving averages begin with the end of the history. Where the scored day follows on it, as in the family ``trace``,
    that says where the day begins. Elsewhere a few windows make it forget.
    """

    SPANS = (1, 2, 4, 8, 24)  # windows of the moving averages
    SMOOTH = 13  # windows over which a course is averaged
    NEAR = 18  # windows of the day from which errors are taken

    def __init__(self, instance: Instance, horizon: int = 12):
        self.window_s, self.horizon = instance.window_s, horizon
        self.nominal = np.array([w.rate_rps for w in instance.workloads])
        self.day = instance.num_windows
        process = instance.dynamics.demand
        rolled = (
            process.kind == "resampled-history" and float(parameter(process, "roll_windows", 1)[0]) > 24.0
        )
        self.past = self._logs(instance.history.rate_rps)
        self.days = len(self.past) // self.day
        self.has_course = self.days > 1 and not rolled
        self.phase = (
            -self.days * self.day + len(self.past)
        ) % self.day  # of the day in which the history begins
        self.window = -1
        self._fit()

    def _logs(self, rate_rps: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(rate_rps / self.nominal, _LEAST))

    def _fit(self) -> None:
        history, horizon = self.past, self.horizon
        length, count = history.shape
        course = self._courses() if self.has_course else None
        rows = np.arange(min(self.SPANS[-1], max(0, length - horizon - 1)), max(1, length - horizon))
        totals = np.concatenate([np.zeros((1, count)), history.cumsum(axis=0)])
        averages = [
            (totals[rows + 1] - totals[np.maximum(0, rows + 1 - span)]) / np.minimum(span, rows + 1)[:, None]
            for span in self.SPANS
        ]
        ahead = np.minimum(rows[:, None] + 1 + np.arange(horizon), length - 1)
        self.weights = np.zeros((count, horizon, len(self.SPANS) + 2))
        self.errors = np.zeros((len(rows), horizon, count))
        self.error_phase = (rows + 1 - self.phase) % self.day
        for i in range(count):
            for h in range(horizon):
                at = None if course is None else (course[rows, i], course[ahead[:, h], i])
                features = self._features([a[:, i] for a in averages], at)
                target = (
                    history[ahead[:, h], i] - history[rows, i]
                )  # of a still history: nothing, so what is new stays
                gram = features.T @ features + 1e-3 * len(rows) * np.diag(
                    [0.0] + [1e-2] * (features.shape[1] - 1)
                )
                self.weights[i, h, : features.shape[1]] = weights = np.linalg.lstsq(
                    gram, features.T @ target, rcond=None
                )[0]
                self.errors[:, h, i] = target - features @ weights
        self.course = self._mean_course() if self.has_course else None

    def _features(
        self, averages: list[np.ndarray], course: tuple[np.ndarray, np.ndarray] | None
    ) -> np.ndarray:
        columns = [np.ones_like(averages[0]), *averages]
        return np.stack(columns if course is None else [*columns, course[1] - course[0]], axis=-1)

    def _smoothed(self, days: np.ndarray) -> np.ndarray:
        """Return days averaged over a few windows, which close to a circle."""
        half = self.SMOOTH // 2
        return np.mean([np.roll(days, k, axis=-2) for k in range(-half, half + 1)], axis=0)

    def _mean_course(self) -> np.ndarray:
        whole = self.past[-self.days * self.day :].reshape(self.days, self.day, -1)
        return self._smoothed(whole.mean(axis=0))

    def _courses(self) -> np.ndarray:
        """Return the mean course of the other days for each window of the history, (windows, I)."""
        whole = self.past[-self.days * self.day :].reshape(self.days, self.day, -1)
        others = self._smoothed((whole.sum(axis=0) - whole) / (self.days - 1)).reshape(-1, whole.shape[2])
        rest = len(self.past) - len(others)
        return (
            np.concatenate([self._smoothed(whole.mean(axis=0))[self.day - rest :], others])
            if rest
            else others
        )

    def update(self, rate_rps: np.ndarray) -> None:
        """Take in the rates (I,) of one more window."""
        self.window += 1
        self.past = np.concatenate([self.past[-self.SPANS[-1] :], self._logs(rate_rps)[None]])

    def expected(self, windows: int) -> np.ndarray:
        """Return the expected log of rate over nominal rate in the windows that follow, (windows, I)."""
        averages = [self.past[-span:].mean(axis=0) for span in self.SPANS]
        out = np.empty((windows, self.nominal.size))
        for h in range(windows):
            k = min(h, self.horizon - 1)
            course = None
            if self.course is not None:
                course = self.course[self.window % self.day], self.course[(self.window + 1 + h) % self.day]
            features = self._features(averages, course)  # (I, features)
            out[h] = averages[0] + (features * self.weights[:, k, : features.shape[1]]).sum(axis=1)
        return out

    def sample(self, paths: int, windows: int, rng: np.random.Generator) -> np.ndarray:
        """Return rates of the windows that follow, (paths, windows, I) requests/s."""
        now = (self.window + 1) % self.day
        distance = np.abs((self.error_phase - now + self.day // 2) % self.day - self.day // 2)
        near = np.flatnonzero(distance <= max(self.NEAR, np.sort(distance)[min(paths, distance.size) - 1]))
        ranked = near[np.argsort(self.errors[near, 0].sum(axis=1), kind="stable")]
        picks = ranked[(strata(rng, paths, 1)[:, 0] * ranked.size).astype(int)]
        ahead = np.minimum(np.arange(windows), self.horizon - 1)
        logs = self.expected(windows) + self.errors[picks][:, ahead]
        return np.rint(self.nominal * np.exp(logs) * self.window_s) / self.window_s


def demand_belief(instance: Instance) -> ProcessBelief | HistoryBelief:
    """Return the belief for an instance's kind of demand: a filter if its parameters are public, else a regression."""
    if instance.dynamics.demand.kind in (*LEVEL_KINDS, "grw"):
        return ProcessBelief(instance)
    return HistoryBelief(instance)
