"""The rules of pods: their PodGroup, their shares of GPUs, and the GPUs that they may see."""
