"""What the sampler costs: the parts of `gdd bench`."""
