"""Memory: how the frozen weights are held."""
