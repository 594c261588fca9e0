"""The simulated machine: loop, clock, chance, processes, disk, network."""
