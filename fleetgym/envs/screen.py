"""Show RGB arrays in a window on the screen, for ``render_mode="human"``."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetgym.files.errors import FleetgymError


class Screen:
    """Opens at the first frame; can be closed, and opens again with the next.

    Parameters
    ----------
    title : str
        Of the window.
    fps : float
        Frames are shown for at least 1 / fps seconds.
    """

    def __init__(self, title: str, fps: float):
        self.title, self.fps = title, fps
        self._window: Any = None
        self._clock: Any = None

    def show(self, frame: np.ndarray) -> None:
        """Show a frame, uint8 (height, width, 3).

        Raises
        ------
        FleetgymError
            If pygame is not installed.
        """
        pygame = _pygame()
        if self._window is None:
            pygame.init()
            pygame.display.init()
            self._window = pygame.display.set_mode((frame.shape[1], frame.shape[0]))
            pygame.display.set_caption(self.title)
            self._clock = pygame.time.Clock()
        surface = pygame.surfarray.make_surface(frame.transpose(1, 0, 2))
        self._window.blit(surface, (0, 0))
        pygame.event.pump()
        pygame.display.flip()
        self._clock.tick(self.fps)

    def close(self) -> None:
        """Close the window, if it is open."""
        if self._window is not None:
            pygame = _pygame()
            pygame.display.quit()
            pygame.quit()
            self._window = self._clock = None

    def __getstate__(self) -> dict[str, Any]:
        return {"title": self.title, "fps": self.fps, "_window": None, "_clock": None}


def _pygame() -> Any:
    try:
        import pygame
    except ImportError as error:
        raise FleetgymError("render_mode 'human' needs pygame: pip install 'fleetgym[render]'") from error
    return pygame
