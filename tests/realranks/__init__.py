"""Real PyTorch ranks (Gloo, CPU, loopback) that really hang, and the evidence taken of them."""
