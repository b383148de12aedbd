"""The reference agents, under a name that no folder of a user's hides: in a checkout, the folder `baselines`.

The wheel carries that folder's files in the place of this one.
"""

from pathlib import Path

__path__ = [str(Path(__file__).resolve().parents[2] / "baselines")]
