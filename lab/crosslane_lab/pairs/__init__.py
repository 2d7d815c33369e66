"""The tunnel over pairs and triples of paths drawn at random (docs/results/pairs.md)."""
