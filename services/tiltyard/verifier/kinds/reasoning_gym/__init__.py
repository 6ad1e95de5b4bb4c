"""Kind `reasoning_gym`: an item of a reasoning-gym data set, scored by its own scorer inside a sandbox."""
