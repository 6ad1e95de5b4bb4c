"""The program that is PID 1 of every sandbox; it is copied into the image and imports nothing of ours."""
