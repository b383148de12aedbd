"""Find the instance that a user names, and print what to know before playing it."""

from __future__ import annotations

from collections.abc import Iterable

from fleetgym.cli.output import note
from fleetgym.files.errors import FleetgymError


def instance_name(text: str) -> str:
    """Return the name of an instance, or the path of a file that may hold one.

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
    from fleetgym.agents.registry import agent_entries
    from fleetgym.model.library import is_path, list_instances, refuse_other_file, suites

    if text in {*suites(), *(suite.partition("/")[0] for suite in suites())}:
        members = list_instances(text)
        raise FleetgymError(
            f"{text!r} is a suite of {len(members)} instances; expected one: {members[0]}, ..."
        )
    if not is_path(text):
        if text.partition("(")[0] in agent_entries():
            raise FleetgymError(
                f"{text!r} is an agent; an instance comes first, as in fleet-v0/toy/drop --agent {text}"
            )
        refuse_other_file(text)
    return text


def tell_reserved(names: Iterable[str]) -> None:
    """Note that an episode bills reserved GPUs of an instance file while they are held, not as a commitment.

    The environment's own instances have no commitments.
    """
    from fleetgym.model.library import is_path, load_instance

    for name in names:
        pools = [p.id for p in load_instance(name).pools if p.market == "reserved"] if is_path(name) else []
        if pools:
            note(
                f"{name}: {', '.join(pools)}: an episode pays reserved GPUs only while they are held; "
                "fleetgym plan pays them all day"
            )
