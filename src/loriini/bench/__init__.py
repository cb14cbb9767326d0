"""Speed and memory on this machine relative to named baselines, as reported in docs/speed.md."""
