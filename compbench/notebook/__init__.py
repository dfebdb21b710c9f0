"""What a notebook uses: `compbench.run`, `load` and `task`."""
