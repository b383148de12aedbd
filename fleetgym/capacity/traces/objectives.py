"""Service level objectives as words, as a file or as objects in; one `Slo` per workload out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetgym.capacity.traces.small_csv import SMALL_FILE_BYTES, amount, csv_rows
from fleetgym.capacity.traces.source import fail
from fleetgym.files.documents import parse_json, read_text
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError, suggestion
from fleetgym.files.quantities import PENALTY_USD, POSITIVE_SHARE, SLO_S
from fleetgym.files.schema import Checked, Number, documented, spec


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Slo(Checked):
    """What a workload is promised, and optionally what breaking it costs.

    Examples
    --------
    >>> Slo(ttft=-1)
    Traceback (most recent call last):
    ...
    fleetgym.files.errors.DataError: Slo.ttft: expected a number from 1e-6 to 1e7 s, got -1
    """

    ttft: float = spec(SLO_S, 2.0, doc="to the first token")
    delay: float | None = spec(
        SLO_S.or_null(),
        None,
        doc="mean of a request; None: 1.3 times the median of good configurations",
    )
    error: float = spec(POSITIVE_SHARE, 0.05, doc="mean share of wrong answers")
    unserved_usd: float | None = spec(
        PENALTY_USD.or_null(), None, doc="per request; None: from the rent, see `import_trace`"
    )
    late_usd: float | None = spec(
        PENALTY_USD.or_null(),
        None,
        doc="per request whose first token is late; None: a third of unserved_usd",
    )


_KINDS: dict[str, Number] = {field.name: field.metadata["kind"] for field in dataclasses.fields(Slo)}


def parse_slo(text: str) -> Slo:
    """Read SLOs such as ``ttft=2,delay=20,error=0.05``.

    Examples
    --------
    >>> parse_slo("ttft=1.5,error=0.03").ttft
    1.5
    """
    values = {}
    for part in text.split(","):
        name, equals, number = part.partition("=")
        if not equals:
            raise FleetgymError(f"cannot read the SLO {part!r}; expected name=number, as in ttft=2,delay=20")
        name = name.strip(" ")
        if name in values:
            raise FleetgymError(f"the SLO {name} is given twice")
        values[name] = number.strip(" ")
    return _slo(values)


def _slo(values: Mapping[str, Any]) -> Slo:
    for name in values:
        if name not in _KINDS:
            raise FleetgymError(f"unknown SLO {name!r}{suggestion(name, _KINDS)}")
    return Slo(**{name: amount(name, value, _KINDS[name]) for name, value in values.items()})


def without_words(slo: str | Slo | Mapping[str, Slo] | None) -> str | Slo | Mapping[str, Slo] | None:
    """Return SLOs given as words as an object, and anything else, such as the name of a file, as it is.

    Raises
    ------
    FleetgymError
        For words that are no SLO.
    """
    return parse_slo(slo) if isinstance(slo, str) and "=" in slo and not Path(slo).is_file() else slo


def slos_for(slo: str | Slo | Mapping[str, Slo] | None, names: Sequence[str]) -> tuple[Slo, ...]:
    """Return one SLO per workload.

    Parameters
    ----------
    slo : str, Slo or mapping, optional
        ``"ttft=2,delay=20"`` for all; the name of a file (CSV with a column ``workload`` and any of ``ttft,delay,error,
        unserved_usd,late_usd``, or JSON of the same by workload), where ``*`` stands for all that are not named;
        an `Slo`, or one by workload.
    names : sequence of str
        Ids of the workloads.

    Returns
    -------
    tuple of Slo

    Raises
    ------
    DataError
        With file and place of what is wrong.
    FleetgymError
        For words that are no SLO, or workloads that are not there.
    """
    slo = without_words(slo)
    if slo is None or isinstance(slo, Slo):
        return (slo or Slo(),) * len(names)
    if isinstance(slo, str):
        slo = _read_slos(slo, names)
    for name in slo:
        if name != "*" and name not in names:
            raise UnknownNameError("workload", name, names)
    return tuple(slo.get(name, slo.get("*", Slo())) for name in names)


def _read_slos(path: str, names: Sequence[str]) -> dict[str, Slo]:
    if path.endswith((".json", ".json.gz")):
        return _read_slo_json(path, names)
    found: dict[str, Slo] = {}
    for line, row in csv_rows(path, ("workload", *_KINDS), required=("workload",)):
        name = row.pop("workload")
        try:
            _known_workload(name, names)
            if name in found:
                raise FleetgymError(f"the workload {name!r} is listed twice")
            found[name] = _slo({key: value for key, value in row.items() if value})
        except FleetgymError as error:
            fail(path, line, str(error))
    return found


def _read_slo_json(path: str, names: Sequence[str]) -> dict[str, Slo]:
    found: dict[str, Slo] = {}
    try:
        data = parse_json(read_text(path, SMALL_FILE_BYTES))
        if not isinstance(data, dict) or not all(isinstance(value, dict) for value in data.values()):
            raise DataError('expected {"workload": {"ttft": 2, "delay": 20}, ...}')
        for name, values in data.items():
            try:
                _known_workload(name, names)
                found[name] = _slo(values)
            except FleetgymError as error:
                raise DataError(str(error), f"$.{name}") from None
    except DataError as error:
        raise error.in_file(path) from None
    return found


def _known_workload(name: str, names: Sequence[str]) -> None:
    if name != "*" and name not in names:
        raise UnknownNameError("workload", name, ["*", *names])
