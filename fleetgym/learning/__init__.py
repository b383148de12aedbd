"""Import what a training script needs: environments for learners, generated instances, and the agents' features.

`for_learning` and `LearningVectorEnv` make environments with normalised observations and continuous actions.
`generate` makes instances of a family. `Margins` turns what was observed into `FEATURES` and fleets, and `margins_of`
turns actions into margins. `read_arrays` reads an agent's weights.
"""

from fleetgym.agents.margins import FEATURES, Margins, margins_of
from fleetgym.envs.wrappers import LearningVectorEnv, for_learning
from fleetgym.families.generate import generate
from fleetgym.files.archives import read_arrays

__all__ = [
    "FEATURES",
    "LearningVectorEnv",
    "Margins",
    "for_learning",
    "generate",
    "margins_of",
    "read_arrays",
]
