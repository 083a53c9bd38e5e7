"""Named failpoints, signals and scripted outcomes."""
