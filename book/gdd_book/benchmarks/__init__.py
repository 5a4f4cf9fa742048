"""What the sampler costs, each part of `gdd bench` in a file of its own: jobs are timed in turn and become rows."""
