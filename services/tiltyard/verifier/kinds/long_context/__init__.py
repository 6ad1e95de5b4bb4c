"""Kind `long_context`: what was found in a long context, with what was put beside it counted against it."""
