"""What a user calls an instance in; the name or file to load out, or an error that says what that was instead."""

from __future__ import annotations

from fleetgym.files.errors import FleetgymError


def instance_name(text: str) -> str:
    """Return the name of an instance, or the path of a file that may hold one.

    Parameters
    ----------
    text : str
        As given on the command line.

    Returns
    -------
    str
        The same.

    Raises
    ------
    FleetgymError
        For a suite, which is several instances; for a trace or another file that is no instance file.

    Examples
    --------
    >>> instance_name("fleet-v0/toy/drop")
    'fleet-v0/toy/drop'
    >>> instance_name("fleet-v0/toy")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fleetgym.files.errors.FleetgymError: ...
    """
    from fleetgym.model.library import is_path, list_instances, suites
    from fleetgym.model.suites import refuse_other_file

    if text in {*suites(), *(suite.partition("/")[0] for suite in suites())}:
        members = list_instances(text)
        raise FleetgymError(
            f"{text!r} is a suite of {len(members)} instances; expected one: {members[0]}, ..."
        )
    if not is_path(text):
        refuse_other_file(text)
    return text
