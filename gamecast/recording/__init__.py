"""Recording of sessions: what writes the files of `analytics.schema`, from inside a connection or from outside."""
