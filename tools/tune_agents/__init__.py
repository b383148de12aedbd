"""Random search over one grid of wrapper arguments, with a race: an agent in, its best setting and a log out."""
