"""Where configurations come from: enumeration of homogeneous ones, and removal of dominated ones."""
