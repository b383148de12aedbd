"""Sample the coming windows given the observed ones: one class for each kind of process of an instance."""
