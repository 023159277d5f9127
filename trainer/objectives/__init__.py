"""Objectives: what a training step computes. Each offers collect(step) -> micro-batches and loss(model, micro_batch) -> [B]."""
