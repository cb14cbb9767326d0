"""A model over several processes: their mesh, FSDP2 sharding, and expert-wise parallelism."""
