"""Kind `sql`: a query, judged by its rows on hidden data."""
