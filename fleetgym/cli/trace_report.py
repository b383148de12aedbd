"""Report an imported trace as text or values: what was found, and where each number comes from."""

from __future__ import annotations

from typing import Any

from fleetgym.capacity.traces import ImportedTrace
from fleetgym.cli.describe import paragraph, provenance_text
from fleetgym.runtime.text_tables import align_columns, number


def trace_facts(made: ImportedTrace, files: tuple[str, str]) -> dict[str, Any]:
    """Return what `describe_trace` tells, as plain values."""
    found = made.statistics
    return {
        "instance": files[0],
        "scenarios": files[1],
        "requests": found.requests,
        "requests_too_long": found.too_long,
        "span_s": found.span_s,
        "windows": found.num_windows,
        "workloads": {
            w.id: {
                "rate_rps": w.rate_rps,
                "input_tokens": w.input_tokens,
                "output_tokens": w.output_tokens,
                "input_cv2": float(found.lengths[i, 2]),
                "output_cv2": float(found.lengths[i, 3]),
                "arrival_cv2": w.arrival_cv2,
                "prefix_hits": float(found.prefix_hits[i]),
                "unserved_usd": w.unserved_usd,
                "late_usd": w.late_usd,
                "ttft_slo_s": w.ttft_slo_s,
                "delay_slo_s": w.delay_limit_s,
                "error_slo": w.error_slo,
                "bound_to": found.models[i],
            }
            for i, w in enumerate(made.instance.workloads)
        },
        "columns": found.read_as,
        "workloads_by": found.rule,
        "pools": {
            pool.id: {
                "gpu": pool.gpu_type,
                "market": pool.market,
                "usd_per_gpu_h": pool.price_usd_per_gpu_h,
                "cap": pool.cap_gpus,
            }
            for pool in made.instance.pools
        },
        "candidates": [c.id for c in made.instance.configurations],
        "context_limit": made.context_limit,
        "days": made.days.extension,
        "provenance": dict(made.instance.provenance),
        "stored_days": [scenario.id for scenario in made.scenarios],
        "notes": list(made.notes),
    }


def describe_trace(made: ImportedTrace, files: tuple[str, str]) -> str:
    """Return what was found in a trace, what was made of it, where each number comes from, and what to do next."""
    found, instance = made.statistics, made.instance
    head = f"{found.requests:,} requests in {_duration(found.span_s)}, {found.num_windows} whole windows of 5 minutes"
    if not found.is_clock:
        head += "; time zero is taken as midnight"
    facts = [
        *(("columns", text) for text in [found.read_as] if text),
        ("workloads", found.rule),
        ("days", made.days.extension),
        ("candidates", _candidates(made)),
        *(("bound", text) for text in [_bound(made)] if text),
        ("stored", ", ".join(scenario.id for scenario in made.scenarios)),
        *(("note", note) for note in made.notes),
    ]
    workloads, cv2 = instance.workloads, found.lengths[:, 2:]
    table = align_columns(
        [
            ("workload", [w.id for w in workloads]),
            ("req/s", [number(w.rate_rps, 3) for w in workloads]),
            ("tokens in", [number(w.input_tokens, 0) for w in workloads]),
            ("cv2", [number(value, 2) for value in cv2[:, 0]]),
            ("out", [number(w.output_tokens, 0) for w in workloads]),
            ("cv2", [number(value, 2) for value in cv2[:, 1]]),
            ("arrival cv2", [number(w.arrival_cv2, 2) for w in workloads]),
            ("delay SLO s", [number(w.delay_limit_s, 2) for w in workloads]),
            ("unserved USD", [f"{w.unserved_usd:.4g}" for w in workloads]),
        ]
    )
    text = "\n".join(paragraph(name, value) for name, value in facts)
    wrote = f"wrote {files[0]} and {files[1]}\nnext: fleetgym plan {files[0]} --agent milp"
    known = provenance_text({name: text for name, text in instance.provenance.items() if name != "trace"})
    return f"{head}\n\n{table}\n\n{text}\n\nwhere the numbers come from\n{known}\n\n{wrote}"


def _candidates(made: ImportedTrace) -> str:
    instance = made.instance
    models = ", ".join(dict.fromkeys(c.model for c in instance.configurations))
    pools = ", ".join(f"{p.gpu_type} {p.market} at most {p.cap_gpus}" for p in instance.pools)
    return (
        f"{instance.num_configurations} configurations of {models} on {pools}; context up to "
        f"{made.context_limit:,} tokens"
    )


def _bound(made: ImportedTrace) -> str:
    """Return which workloads are served by one model alone; empty where none is."""
    pairs = zip(made.statistics.names, made.statistics.models, strict=True)
    return ", ".join(f"{name} is served by {model} alone" for name, model in pairs if model)


def _duration(seconds: float) -> str:
    """Return a span in words.

    Examples
    --------
    >>> _duration(3501.7), _duration(691200.0)
    ('58.4 minutes', '8.0 days')
    """
    if seconds < 2 * 3600:
        return f"{seconds / 60:.1f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 2 * 86400 else f"{seconds / 86400:.1f} days"
