"""Kind `math`: a final mathematical answer, compared by value and in the form that was asked for."""
