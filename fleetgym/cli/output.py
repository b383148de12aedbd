"""Write answers as text or JSON, and notes on stderr."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from fleetgym.files.errors import plain


def tell(arguments: argparse.Namespace, facts: Any, text: str) -> None:
    """Print facts as JSON where ``--json`` asks for it, otherwise the text."""
    if arguments.json:
        print_json(facts)
    else:
        print(text)


def print_json(facts: Any) -> None:
    """Print plain values as JSON, one name a line."""
    print(json.dumps(facts, indent=2, allow_nan=False))


def note(text: str) -> None:
    """Print a line on stderr that begins with the command's name."""
    print(plain(f"fleetgym: {text}"), file=sys.stderr)
