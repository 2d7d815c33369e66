"""Trajectories of vehicles in a city, from a built-in model or from SUMO, as the mobility file of a scenario."""
