"""Compute what a window brings and the coefficients that follow, as plain lists (section 1 of the model)."""

from __future__ import annotations

import math

from fleetgym.model.instance import Affine, Instance

HOURS = 1 / 3600


class Book:
    """Everything the sections look up, as Python lists: [i] workload, [c] configuration, [g] pool."""

    def __init__(self, instance: Instance):
        self.workloads = instance.workloads
        self.configurations = instance.configurations
        self.num_workloads = instance.num_workloads
        self.num_configurations = instance.num_configurations
        self.num_pools = instance.num_pools
        self.window_s = instance.window_s
        self.by_day = instance.penalty_basis == "day"
        self.budget = instance.budget
        self.slots = instance.slot_members
        self.exclusive = [slot.exclusive for slot in instance.slots]
        self.gpus: list[list[int]] = instance.gpu_use.tolist()
        #: Pools that a replica uses, with its GPUs there.
        self.uses = [
            [(g, row[c]) for g, row in enumerate(self.gpus) if row[c]] for c in range(self.num_configurations)
        ]
        self.rent_per_h: list[list[float]] = instance.rental_usd_per_h.tolist()
        tables = instance.performance
        self.compatible = tables.compatible.tolist()
        self.delay, self.work = _Lengths(tables.delay_s), _Lengths(tables.work_tflop)
        self.service, self.prefill = _Lengths(tables.service_s), _Lengths(tables.prefill_s)
        self.service_cv2, self.error = tables.service_cv2.tolist(), tables.error.tolist()
        self.storage_usd, self.tie_break = tables.storage_usd.tolist(), tables.tie_break.tolist()
        members = [c for slot in self.slots for c in slot]
        self.rank = {c: position for position, c in enumerate(members)}
        self.most_windows = max(1, *(c.startup_windows for c in self.configurations))

    def first_token(
        self, i: int, c: int, tokens_in: float, tokens_out: float, factor: float = 1.0
    ) -> tuple[float, float]:
        """Return the share of prompts that are late without waiting, and how long the others may wait on average."""
        workload = self.workloads[i]
        slo, law = workload.ttft_slo_s, workload.input_law
        if slo is None:
            return 0.0, math.inf
        seconds = factor * self.prefill.at(i, c, tokens_in, tokens_out)
        prompt = factor * self.prefill.per_input[i][c] * tokens_in
        if law is None or prompt == 0.0:
            return (1.0, 0.0) if seconds >= slo else (0.0, slo - seconds)
        ends = [factor * self.prefill.at(i, c, 0.0, tokens_out) + prompt * x for x in law.factors]
        late, in_time, spent = [], [], []
        for q, r, first, last in zip(law.shares, law.shares[1:], ends, ends[1:], strict=False):
            short = (slo - first) / (last - first) if last > first else float(first <= slo)
            part = min(1.0, max(0.0, short))
            late.append((1.0 - part) * (r - q))
            in_time.append(part * (r - q))
            spent.append(part * (r - q) * (first + part * (last - first) / 2))
        if not any(in_time):
            return 1.0, 0.0
        return math.fsum(late), slo - math.fsum(spent) / math.fsum(in_time)


class _Lengths:
    """A quantity that is affine in the mean token lengths."""

    def __init__(self, table: Affine):
        self.base = table.base.tolist()
        self.per_input = table.per_input_token.tolist()
        self.per_output = table.per_output_token.tolist()

    def at(self, i: int, c: int, tokens_in: float, tokens_out: float) -> float:
        """Return the quantity for workload i on configuration c."""
        return self.base[i][c] + self.per_input[i][c] * tokens_in + self.per_output[i][c] * tokens_out


class Conditions:
    """Section 1: what window `t` of a scenario brings, and the coefficients that follow from it."""

    def __init__(self, book: Book, rows: dict[str, list[list[float]]], t: int):
        def row(name: str) -> list[float]:
            return rows[name][t if len(rows[name]) > 1 else 0]

        self.book = book
        self.rate = row("rate_rps")
        self.available = row("available_gpus")
        self.price_factor = row("price_factor")
        self.delay_factor, self.error_factor = row("delay_factor"), row("error_factor")
        scale_in, scale_out = row("input_scale"), row("output_scale")
        self.tokens_in = [w.input_tokens * s for w, s in zip(book.workloads, scale_in, strict=True)]
        self.tokens_out = [w.output_tokens * s for w, s in zip(book.workloads, scale_out, strict=True)]
        self.present = [i for i, rate in enumerate(self.rate) if rate > 0]
        self.requests = [rate * book.window_s for rate in self.rate]
        days = book.window_s / 86400
        self.weight = [
            (days if rate > 0 else 0.0) if book.by_day else n
            for rate, n in zip(self.rate, self.requests, strict=True)
        ]
        self.penalty = [m * w.unserved_usd for m, w in zip(self.weight, book.workloads, strict=True)]

    def delay_s(self, i: int, c: int) -> float:
        """D: residency of a request."""
        return self.delay_factor[i] * self.book.delay.at(i, c, self.tokens_in[i], self.tokens_out[i])

    def service_s(self, i: int, c: int) -> float:
        """S: how long a request holds a server."""
        return self.delay_factor[i] * self.book.service.at(i, c, self.tokens_in[i], self.tokens_out[i])

    def work_tflop(self, i: int, c: int) -> float:
        """Compute of a request."""
        return self.book.work.at(i, c, self.tokens_in[i], self.tokens_out[i])

    def error(self, i: int, c: int) -> float:
        """e: error share of a request."""
        return self.error_factor[i] * self.book.error[i][c]

    def kv_gb_s(self, i: int, c: int) -> float:
        """GB of KV cache times seconds that a request holds them (Little's law)."""
        per_token = self.book.configurations[c].kv_gb_per_token
        return per_token * (self.tokens_in[i] + self.tokens_out[i]) * self.delay_s(i, c)

    def first_token(self, i: int, c: int) -> tuple[float, float]:
        """Return the share of prompts that are late without waiting, and how long the others may wait on average."""
        return self.book.first_token(i, c, self.tokens_in[i], self.tokens_out[i], self.delay_factor[i])

    def rent_usd(self, c: int) -> float:
        """Rent of one replica for this window."""
        per_h = [
            rent[c] * factor for rent, factor in zip(self.book.rent_per_h, self.price_factor, strict=True)
        ]
        return math.fsum(per_h) * self.book.window_s * HOURS

    def storage_usd(self, c: int) -> float:
        """Model storage of one replica for this window."""
        return self.book.configurations[c].model_storage_usd_per_h * self.book.window_s * HOURS

    def hold_usd(self, c: int) -> float:
        """Cost of holding one replica in this window."""
        return self.rent_usd(c) + self.storage_usd(c)
