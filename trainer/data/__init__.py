"""From files to training examples: sources, probe, retime, buckets, windows, decode, cache, sampler, report."""
