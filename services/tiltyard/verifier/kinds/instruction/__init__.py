"""Kind `instruction`: rules about the form of an answer, each checked by a small class of its own."""
