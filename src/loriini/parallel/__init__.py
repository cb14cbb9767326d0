"""A model spread over processes: the mesh, FSDP2 sharding, and expert-wise parallelism."""
