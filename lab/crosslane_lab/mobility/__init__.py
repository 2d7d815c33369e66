"""Ways of vehicles through a city, made by an engine of our own or by SUMO, as the mobility file of a scenario."""
