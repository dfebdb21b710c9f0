"""What happens inside a conditional model on a grid of two factors: superposition, kernels, geometry, probes, ranks."""
