"""Models: pure wire modules, one HTTP shell for them, and a model that plays a script."""
