"""Where agents are kept: the Protocol, and one store per place."""
