"""Check the arguments of agents, and pass them to the planners that agents wrap."""

from __future__ import annotations

import inspect
import numbers
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.files.schema import shown

#: The largest number among the arguments of agents; whole numbers fit 64 bits.
MOST = 10**9


class Wrapped:
    """Makes an agent or planner around an inner one, from the arguments of both.

    Parameters
    ----------
    about : str
        Docstring of what is made.
    outer : callable
        Class or factory whose first parameter is the inner object.
    inner : callable
        Class or factory of the inner object. An argument that both have goes to both.
    **defaults
        Defaults that replace those of `outer` and `inner`.

    Examples
    --------
    >>> from fleetgym import Rolling
    >>> class Grid:
    ...     def __init__(self, depth: int = 3): self.depth = depth
    ...     def plan(self, snapshot): ...
    >>> grid = Wrapped("Grid search, repeated.", Rolling, Grid, every=6)
    >>> made = grid(depth=5)
    >>> made.every, made.planner.depth, "depth" in grid.parameters
    (6, 5, True)
    """

    def __init__(
        self, about: str, outer: Callable[..., Any], inner: Callable[..., Any], **defaults: Any
    ) -> None:
        self.__doc__ = about
        self.outer, self.inner, self.defaults = outer, inner, defaults
        _, *first = (parameters_of(outer, evaluated=True) or {}).values()
        second = (parameters_of(inner, evaluated=True) or {}).values()
        self._of_outer, self._of_inner = {p.name for p in first}, {p.name for p in second}
        self.parameters = {
            p.name: p.replace(kind=p.KEYWORD_ONLY, default=defaults.get(p.name, p.default))
            for p in (*first, *second)
        }

    def __call__(self, **arguments: Any) -> Any:
        """Return what `outer` makes around what `inner` makes."""
        given = {**self.defaults, **arguments}
        made = self.inner(
            **{k: v for k, v in given.items() if k in self._of_inner or k not in self._of_outer}
        )
        return self.wrap(made, {k: v for k, v in given.items() if k in self._of_outer})

    def wrap(self, made: Any, arguments: dict[str, Any]) -> Any:
        """Return `outer` of the inner object; subclasses may change its arguments."""
        return self.outer(made, **arguments)


def parameters_of(make: Callable[..., Any], evaluated: bool = False) -> dict[str, inspect.Parameter] | None:
    """Return the keyword parameters of a class or factory, or None if it takes any.

    Parameters
    ----------
    make : callable
        The class or factory.
    evaluated : bool
        Whether annotations that are text become types; for trusted code only.

    Examples
    --------
    >>> list(parameters_of(shown))
    ['value']
    """
    if isinstance(make, Wrapped):
        return make.parameters
    try:
        found = inspect.signature(make, eval_str=evaluated).parameters.values()
    except (TypeError, ValueError):  # some that are written in C do not tell
        return None
    if any(p.kind is p.VAR_KEYWORD for p in found):
        return None
    return {p.name: p for p in found if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)}


def check_arguments(make: Callable[..., Any], arguments: Mapping[str, Any], typed: bool) -> None:
    """Raise an error for arguments that a class or factory does not take.

    Parameters
    ----------
    make : callable
        The class or factory.
    arguments : mapping of str to object
        The arguments of the call.
    typed : bool
        Whether they must have the annotated types.

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
    >>> written(shown, typed=True)
    {'value': 'required'}
    """
    return {
        name: "required" if p.default is p.empty else repr(p.default)
        for name, p in (parameters_of(make, typed) or {}).items()
        if not typed or any(_is_a(value, p.annotation) for value in (True, 1, 0.5, ""))
    }


def _is_a(value: Any, expected: Any) -> bool:
    """Check a value against an annotation; a whole number is a number, and a truth value is neither."""
    if expected is Any or expected is inspect.Parameter.empty:
        return True
    kind = typing.get_origin(expected) or expected
    if kind in (types.UnionType, typing.Union):
        return any(_is_a(value, choice) for choice in typing.get_args(expected))
    if kind in (int, float):
        return is_number(value, whole=kind is int)
    return isinstance(value, kind)


def is_number(value: object, whole: bool = False) -> bool:
    """Check that a value is a number of Python or NumPy, and not a bool.

    Parameters
    ----------
    value : object
    whole : bool
        Whether it must be of a type of whole numbers.

    Examples
    --------
    >>> is_number(2.0), is_number(2.0, whole=True), is_number(True)
    (True, False, False)
    """
    return isinstance(value, numbers.Integral if whole else numbers.Real) and not isinstance(value, bool)


def at_least(least: float, **values: Any) -> None:
    """Raise unless all values are numbers from a bound to `MOST`, or None for a setting that is off.

    Raises
    ------
    FleetgymError
        For the first value that is not.

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
    """Raise unless all values are whole numbers from a bound on.

    Raises
    ------
    FleetgymError
        For the first value that is not.

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
    """Raise unless all values are numbers above a bound.

    Raises
    ------
    FleetgymError
        For the first value that is not.

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
    """Raise unless all values are True or False.

    Raises
    ------
    FleetgymError
        For the first value that is not.

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
    """Raise unless all values are above 0 and at most 1, or None for a setting that is off.

    Raises
    ------
    FleetgymError
        For the first value that is not.

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
    """Raise unless all values are among the choices.

    Raises
    ------
    FleetgymError
        For the first value that is not.

    Examples
    --------
    >>> one_of(["safe", "free"], late="save")
    Traceback (most recent call last):
    fleetgym.files.errors.FleetgymError: late is 'save'; expected one of safe, free
    """
    for name, value in values.items():
        if value not in choices:
            raise FleetgymError(f"{name} is {shown(value)}; expected one of {', '.join(choices)}")
