"""Import a trace with prices and SLOs as an instance and its stored scenarios."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

import numpy as np

from fleetgym.capacity.traces.build import DEFAULT_PENALTY, build
from fleetgym.capacity.traces.candidates import longest_requests, with_default_errors
from fleetgym.capacity.traces.days import Days, make_days
from fleetgym.capacity.traces.labels import bind, candidate_models
from fleetgym.capacity.traces.objectives import Slo, check_deferred, slos_for, states_error, without_words
from fleetgym.capacity.traces.own_hardware import OwnHardware
from fleetgym.capacity.traces.price_lists import PriceList, chosen, read_prices
from fleetgym.capacity.traces.prices import DEFAULT_REGION, Offer, catalogue_prices, with_caps
from fleetgym.capacity.traces.process import fit_process
from fleetgym.capacity.traces.reader import ReadOptions, Trace, read_trace
from fleetgym.capacity.traces.recipe import Recipe
from fleetgym.capacity.traces.source import PACKED, StrPath, fail
from fleetgym.capacity.traces.tables import files
from fleetgym.capacity.traces.workloads import TraceStatistics, study
from fleetgym.families.text import six
from fleetgym.files.errors import FleetgymError
from fleetgym.files.quantities import SHARE
from fleetgym.hardware import catalog
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.instance_files import write_instance
from fleetgym.model.scenario import Scenario

DRAWN_SCENARIOS = 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportedTrace:
    """What `import_trace` made."""

    instance: Instance
    scenarios: tuple[Scenario, ...]  # the trace's own day first, where there is one
    statistics: TraceStatistics
    days: Days  # how the trace became days, what was fitted and what assumed
    notes: tuple[str, ...]  # what its user should know

    @property
    def context_limit(self) -> int:
        """Tokens of the longest request."""
        return int(self.statistics.held.longest.max())

    def write(self, path: StrPath, *, force: bool = False) -> tuple[Path, Path]:
        """Write both as `fleetgym.model.instance_files.write_instance` does, and return the files' paths."""
        return write_instance(path, self.instance, self.scenarios, force=force)


def import_trace(
    path: StrPath | Sequence[StrPath],
    *,
    prices: StrPath | Sequence[Offer] | None = None,
    slo: str | Slo | Mapping[str, Slo] | None = None,
    models: Sequence[str] | None = None,
    binds: Mapping[str, str] | None = None,
    gpus: Sequence[str] | None = None,
    region: str | None = None,
    caps: Mapping[str, int] | None = None,
    by: str = "auto",
    buckets: int = 3,
    edges: Sequence[int] | None = None,
    penalty: float = DEFAULT_PENALTY,
    extend: str = "model",
    scale: float = 1.0,
    leave_out_at_most: float = 0.05,
    prefix_hit: float | None = None,
    name: str | None = None,
    seed: int = 0,
    scenarios: int = DRAWN_SCENARIOS,
    context: int | None = None,
    own: OwnHardware | None = None,
    **reading: Unpack[ReadOptions],
) -> ImportedTrace:
    """Make an instance from a trace of requests.

    Parameters
    ----------
    path : path-like, or sequence of them
        Files or folders of one trace: the Azure LLM inference trace, or a CSV of times, input and output tokens, see
        `fleetgym.capacity.traces.header.COLUMN_NAMES`; either may be gzipped.
    prices : path-like or sequence of Offer, optional
        A price list, see `fleetgym.capacity.traces.price_lists.read_prices`; by default the catalogue's.
    slo : str, Slo or mapping, optional
        See `fleetgym.capacity.traces.objectives.slos_for`. Default: first token within 2 s, mean error up to 0.05.
    models : sequence of str, optional
        Candidate models of the catalogue, as people name them.
    binds : mapping, optional
        Models by label or pattern, see `fleetgym.capacity.traces.labels.parse_binds`. Without one, a label that names
        a model of the catalogue is served by it.
    gpus : sequence of str, optional
        GPU types to use.
    region : str, optional
        Of the price list, or of the catalogue's prices (us-east-1).
    caps : mapping, optional
        Most GPUs by type, ``"*"`` for all others. Without one, a pool holds twice what the p99 demand needs.
    by, buckets, edges
        How requests become workloads, see `fleetgym.capacity.traces.workloads.study`.
    penalty : float
        An unserved request costs this many times the rent that serves it, see `fleetgym.capacity.traces.build.build`.
    extend : {"model", "stretch"}
        What to do with a trace shorter than a day, see `fleetgym.capacity.traces.days.make_days`.
    scale : float
        Multiplies demand; its shape and the dispersion of counts stay.
    leave_out_at_most : float
        Share of all tokens that may be of requests longer than any candidate's context; more is refused.
    prefix_hit : float, optional
        Share of every prompt that a prefix cache holds; by default what the trace says, and nothing if it does not.
    name : str, optional
        Id of the instance; by default the file's name.
    seed : int
        Of what is drawn. The same arguments give the same instance.
    scenarios : int
        Days to draw and store, beside the trace's own; at least one where the trace has none of its own.
    context : int, optional
        Most tokens of a request, input and output together; longer ones are left out. By default whatever a candidate
        holds.
    own : OwnHardware, optional
        Models, GPUs and measurements of one's own, from `fleetgym.capacity.traces.own_hardware.read_own`. Its models
        are candidates; only they are if `models` is not given.
    **reading
        How the file is read, and which part of it: options of `fleetgym.capacity.traces.reader.read_trace`.

    Returns
    -------
    ImportedTrace

    Raises
    ------
    DataError
        With file and line of what is wrong in the trace, the prices or the SLOs.
    FleetgymError
        For options that contradict each other or the trace, and SLOs that are out of reach.
    """
    own = own or OwnHardware()
    path = files([path] if isinstance(path, (str, os.PathLike)) else path)
    with own.known():
        if seed < 0 or not 0 <= scenarios <= 100:
            raise FleetgymError("expected a seed of at least 0 and 0 to 100 scenarios")
        listed, promised = _offers(prices, gpus, region, caps or {}, own), without_words(slo)
        mine = tuple(o.model.name for o in own.models)
        source, models = Path(path).name, (*mine, *(candidate_models(models) or ())) or None
        regions = {offer.region for offer in listed.offers}
        with read_trace(path, regions=regions, **reading) as trace:
            bound = bind(trace.pairs, trace.label_counts(), binds, models)
            if mine == models:  # no candidate of the catalogue was named
                models = tuple(dict.fromkeys([*mine, *filter(None, bound.models)]))
            longest = longest_requests(models, bound.models, listed.offers, context)
            _leave_out_too_long(trace, longest, leave_out_at_most, path)
            found = study(
                trace,
                by=by,
                buckets=buckets,
                edges=edges,
                bound=bound,
                prefix_hit=None if prefix_hit is None else SHARE.read(prefix_hit, "prefix_hit"),
                source=os.fspath(path),
            )
        slos = slos_for(promised, found.names)
        slos = with_default_errors(slos, states_error(slo, found.names), models, found.models)
        check_deferred(slos, found.names)
        days = make_days(found, fit_process(found), extend, np.random.default_rng([seed, 0]), scale)
        if not days.scored and scenarios == 0:
            raise FleetgymError("the trace has no day of its own to store; expected at least 1 scenario")
        instance, notes = build(
            name or id_from_name(_stem(source)),
            found,
            days,
            Recipe.of(found, listed.offers, models, own, penalty),
            slos,
            source=source,
            prices=_prices_from(prices, region, listed.offers, own.offers),
        )
    drawn = [
        draw_scenario(instance, np.random.default_rng([seed, 1 + k]), f"drawn-{k}") for k in range(scenarios)
    ]
    return ImportedTrace(
        instance=instance,
        scenarios=tuple(scenario.check(instance) for scenario in [*_stored(instance, days), *drawn]),
        statistics=found,
        days=days,
        notes=(*found.notes, *own.notes, *bound.notes, *listed.notes, *days.notes, *notes),
    )


def _stored(instance: Instance, days: Days) -> list[Scenario]:
    """Return the trace's own days, with nominal factors and every GPU there."""
    nominal = np.ones((1, len(instance.workloads)))
    caps = np.array([[pool.cap_gpus for pool in instance.pools]], dtype=np.int64)
    return [
        Scenario(
            id=day,
            rate_rps=six(rate),
            input_scale=six(input_scale),
            output_scale=six(output_scale),
            delay_factor=nominal,
            error_factor=nominal,
            available_gpus=caps,
            price_factor=np.ones_like(caps, dtype=float),
        )
        for day, rate, input_scale, output_scale in days.scored
    ]


def _leave_out_too_long(trace: Trace, longest: np.ndarray, most_share: float, path: StrPath) -> None:
    """Leave out what no candidate can hold; raise if that is all, or more of the tokens than is accepted."""
    trace.leave_out_longer(longest, "too long")
    most_tokens = int(longest.max())
    if trace.num_rows == 0:
        fail(
            path,
            "all rows",
            f"every request has more tokens than the {most_tokens:,} that any candidate holds; give other "
            "--models or --gpus",
        )
    requests, tokens = trace.share_left_out("too long")
    if tokens > most_share:
        fail(
            path,
            "all rows",
            f"{requests:.1%} of the requests, with {tokens:.1%} of all tokens, have more than the "
            f"{most_tokens:,} tokens that any candidate holds; give other --models or --gpus, or leave them out with "
            f"--leave-out-at-most {np.ceil(100 * tokens) / 100:.2f}",
        )


def _prices_from(
    prices: StrPath | Sequence[Offer] | None,
    region: str | None,
    offers: Sequence[Offer],
    mine: Sequence[Offer],
) -> str:
    """Return where the prices come from, in words."""
    own = [o.gpu for o in mine if o.gpu in {offer.gpu for offer in offers}]
    words = [f"given with the GPU: {', '.join(own)}"] if own else []
    if prices is not None:
        words.append(
            f"given: {Path(prices).name if isinstance(prices, (str, os.PathLike)) else 'offers in Python'}"
        )
    elif len(own) < len(offers):
        words.append(
            f"measured: the cheapest on-demand offer of each GPU in {region or DEFAULT_REGION} "
            "(fleetgym/data/SOURCES.md)"
        )
    return "; ".join(words)


def _offers(
    prices: StrPath | Sequence[Offer] | None,
    gpus: Sequence[str] | None,
    region: str | None,
    caps: Mapping[str, int],
    own: OwnHardware,
) -> PriceList:
    """Return what may be rented: GPUs of one's own that have a price, and those of the list or the catalogue."""
    wanted = None if gpus is None else [catalog.gpu_named(name)[0] for name in gpus]
    mine = tuple(o for o in own.offers if wanted is None or o.gpu in wanted)
    others = None if wanted is None else [gpu for gpu in wanted if gpu not in {o.gpu for o in mine}]
    if prices is None:
        enough = bool(mine) and not others
        listed = PriceList(() if enough else catalogue_prices(others, region or DEFAULT_REGION), ())
    elif isinstance(prices, (str, os.PathLike)):
        listed = PriceList((), ()) if others == [] else read_prices(prices, others, region)
    else:
        listed = PriceList(() if others == [] else chosen(prices, others, region), ())
    return dataclasses.replace(listed, offers=with_caps((*mine, *listed.offers), caps))


def _stem(name: str) -> str:
    """Return the name of a trace without what says how it is packed and written."""
    for ending in (*PACKED, *_WRITTEN):
        name = name.removesuffix(ending)
    return name


_WRITTEN = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet")


def instance_name(trace: StrPath) -> str:
    """Return what the instance of a trace is called if nobody says.

    Examples
    --------
    >>> instance_name("logs/week.csv.gz"), instance_name("usage.json"), instance_name(".csv")
    ('week.json', 'usage-instance.json', 'trace.json')
    """
    name = Path(trace).name
    found = f"{_stem(name) or 'trace'}.json"
    return found if found != name else f"{_stem(name)}-instance.json"


def id_from_name(text: str) -> str:
    """Return a text as the id of an instance.

    Examples
    --------
    >>> id_from_name("Azure LLM (conv)")
    'Azure-LLM-conv'
    """
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-._")[:60]
    return plain or "trace"
