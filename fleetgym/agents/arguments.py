"""Arguments of agents: a class or factory and what it is called with in, an error that names the wrong one out."""

from __future__ import annotations

import functools
import inspect
import numbers
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import numpy as np

from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.files.schema import shown

T = TypeVar("T")

#: Numbers among the arguments of agents are at most so large; whole ones fit 64 bits.
MOST = 10**9


def passes_on(
    *targets: Callable[..., Any], without: Collection[str] = (), **defaults: Any
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Let the signature of a function say where its ``**arguments`` go.

    Parameters
    ----------
    *targets : callable
        What the arguments are passed on to: those parameters of theirs that have defaults become the function's.
    without : collection of str
        Parameters of theirs that the function sets itself.
    **defaults
        Arguments that the function gets where they are not given, instead of the targets' own defaults.

    Returns
    -------
    callable
        A decorator.

    Examples
    --------
    >>> def search(*, depth: int = 3, width: int = 1): ...
    >>> @passes_on(search, width=2)
    ... def agent(margin: float = 0.0, **arguments):
    ...     return margin, arguments
    >>> list(inspect.signature(agent).parameters), agent(depth=5)
    (['margin', 'depth', 'width'], (0.0, {'width': 2, 'depth': 5}))
    """

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        signature = inspect.signature(function, eval_str=True)
        found = {p.name: p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD}
        for target in targets:
            for p in inspect.signature(target, eval_str=True).parameters.values():
                if p.default is not p.empty and p.name not in without:
                    default = defaults.get(p.name, p.default)
                    found.setdefault(p.name, p.replace(kind=p.KEYWORD_ONLY, default=default))
        passed = {name: value for name, value in defaults.items() if name not in signature.parameters}

        @functools.wraps(function)
        def called(*args: Any, **arguments: Any) -> T:
            return function(*args, **{**passed, **arguments})

        called.__signature__ = signature.replace(parameters=list(found.values()))  # type: ignore[attr-defined]
        return called

    return decorate


def parameters_of(make: Callable[..., Any], evaluated: bool = False) -> dict[str, inspect.Parameter] | None:
    """Return what can be given to a class or factory by name, or None where anything can.

    Parameters
    ----------
    make : callable
        The class or factory.
    evaluated : bool
        Whether annotations that are text become types; for code that is known to have right ones.

    Examples
    --------
    >>> list(parameters_of(shown))
    ['value']
    """
    try:
        found = inspect.signature(make, eval_str=evaluated).parameters.values()
    except (TypeError, ValueError):  # some that are written in C do not tell
        return None
    if any(p.kind is p.VAR_KEYWORD for p in found):
        return None
    return {p.name: p for p in found if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}


def check_arguments(make: Callable[..., Any], arguments: Mapping[str, Any], typed: bool) -> None:
    """Refuse arguments that a class or factory does not take.

    Parameters
    ----------
    make : callable
        The class or factory.
    arguments : mapping of str to object
        What it is to be called with.
    typed : bool
        Whether they must be what its annotations say.

    Raises
    ------
    UnknownNameError
        For an argument that it does not have.
    FleetgymError
        For one of another type, or if it takes none.

    Examples
    --------
    >>> check_arguments(shown, {"valeu": 1}, typed=True)
    Traceback (most recent call last):
    fleetgym.files.errors.UnknownNameError: unknown argument 'valeu'; did you mean 'value'? (known: value)
    """
    known = parameters_of(make, typed)
    if known is None:
        return
    for name, value in arguments.items():
        if not known:
            raise FleetgymError(f"it takes no arguments, got {name!r}")
        if name not in known:
            raise UnknownNameError("argument", name, written(make, typed))
        expected = known[name].annotation
        if typed and not _is_a(value, expected):
            raise FleetgymError(f"{name} is {shown(value)}; expected {inspect.formatannotation(expected)}")


def written(make: Callable[..., Any], typed: bool) -> dict[str, str]:
    """Return the arguments that can be given as text, and their defaults as they are written.

    Parameters
    ----------
    make : callable
        The class or factory.
    typed : bool
        As for `check_arguments`; otherwise all arguments are listed.

    Examples
    --------
    >>> written(passes_on, typed=False), written(shown, typed=True)
    ({}, {'value': 'required'})
    """
    return {
        name: "required" if p.default is p.empty else repr(p.default)
        for name, p in (parameters_of(make, typed) or {}).items()
        if not typed or any(_is_a(value, p.annotation) for value in (True, 1, 0.5, ""))
    }


def _is_a(value: Any, expected: Any) -> bool:
    """Tell whether a value is what an annotation says; a whole number is a number, and a truth value is neither."""
    if expected is Any or expected is inspect.Parameter.empty:
        return True
    kind = typing.get_origin(expected) or expected
    if kind in (types.UnionType, typing.Union):
        return any(_is_a(value, choice) for choice in typing.get_args(expected))
    if kind in (int, float):
        return is_number(value, whole=kind is int)
    return isinstance(value, kind)


def is_number(value: object, whole: bool = False) -> bool:
    """Tell whether a value is a number, one of NumPy's included; a truth value is none.

    Parameters
    ----------
    value : object
        Any.
    whole : bool
        Whether it must be of a type of whole numbers.

    Examples
    --------
    >>> is_number(2.0), is_number(2.0, whole=True), is_number(True)
    (True, False, False)
    """
    return isinstance(value, numbers.Integral if whole else numbers.Real) and not isinstance(value, bool)


def at_least(least: float, **values: Any) -> None:
    """Refuse numbers below a bound or above `MOST`, and what is none; None is a setting that is off.

    Raises
    ------
    FleetgymError
        For the first.

    Examples
    --------
    >>> at_least(1, every=0, samples=6)
    Traceback (most recent call last):
    fleetgym.files.errors.FleetgymError: every is 0; expected at least 1 and at most 1,000,000,000
    """
    for name, value in values.items():
        if value is not None and not (is_number(value) and least <= value <= MOST):
            raise FleetgymError(f"{name} is {shown(value)}; expected at least {least} and at most {MOST:,}")


def whole_at_least(least: int, **values: Any) -> None:
    """Refuse what is no whole number from a bound on.

    Raises
    ------
    FleetgymError
        For the first.

    Examples
    --------
    >>> whole_at_least(1, every=2.5)
    Traceback (most recent call last):
    fleetgym.files.errors.FleetgymError: every is 2.5; expected a whole number of at least 1 and below 2^63
    """
    for name, value in values.items():
        if not (is_number(value, whole=True) and least <= value < 2**63):
            raise FleetgymError(
                f"{name} is {shown(value)}; expected a whole number of at least {least} and below 2^63"
            )


def above(bound: float, **values: Any) -> None:
    """Refuse numbers that are not above a bound, and what is none.

    Raises
    ------
    FleetgymError
        For the first.

    Examples
    --------
    >>> above(-1, margin=-1.0)
    Traceback (most recent call last):
    fleetgym.files.errors.FleetgymError: margin is -1.0; expected above -1 and at most 1,000,000,000
    """
    for name, value in values.items():
        if not (is_number(value) and bound < value <= MOST):
            raise FleetgymError(f"{name} is {shown(value)}; expected above {bound} and at most {MOST:,}")


def flag(**values: Any) -> None:
    """Refuse what is neither True nor False.

    Raises
    ------
    FleetgymError
        For the first.

    Examples
    --------
    >>> flag(keep_best="no")
    Traceback (most recent call last):
    fleetgym.files.errors.FleetgymError: keep_best is 'no'; expected True or False
    """
    for name, value in values.items():
        if not isinstance(value, bool | np.bool_):
            raise FleetgymError(f"{name} is {shown(value)}; expected True or False")


def positive_share(**values: Any) -> None:
    """Refuse numbers that are not above 0 and at most 1, and what is none; None is a setting that is off.

    Raises
    ------
    FleetgymError
        For the first.

    Examples
    --------
    >>> positive_share(utilization=80)
    Traceback (most recent call last):
    fleetgym.files.errors.FleetgymError: utilization is 80; expected above 0 and at most 1
    """
    for name, value in values.items():
        if value is not None and not (is_number(value) and 0.0 < value <= 1.0):
            raise FleetgymError(f"{name} is {shown(value)}; expected above 0 and at most 1")


def one_of(choices: Collection[str], **values: str) -> None:
    """Refuse what is none of the choices.

    Raises
    ------
    FleetgymError
        For the first.

    Examples
    --------
    >>> one_of(["safe", "free"], late="save")
    Traceback (most recent call last):
    fleetgym.files.errors.FleetgymError: late is 'save'; expected one of safe, free
    """
    for name, value in values.items():
        if value not in choices:
            raise FleetgymError(f"{name} is {shown(value)}; expected one of {', '.join(choices)}")
