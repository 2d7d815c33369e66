"""Published results, reproduced by our runs: a folder per paper."""
