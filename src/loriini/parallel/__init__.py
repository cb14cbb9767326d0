"""A model over several processes: their mesh, FSDP2 sharding, and expert-wise and expert parallelism."""
