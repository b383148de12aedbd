"""The papers' evaluations repeated, under a name that no folder of a user's hides: in a checkout, the folder `papers`.

The wheel carries that folder's files in the place of this one.
"""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[2] / "papers")]
