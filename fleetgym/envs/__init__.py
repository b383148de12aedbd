"""Play instances as Gymnasium environments, single or in batches: wrappers, rendering, and policies as agents."""
