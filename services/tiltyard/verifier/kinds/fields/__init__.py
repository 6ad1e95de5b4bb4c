"""Kind `fields`: a JSON object, judged field by field."""
