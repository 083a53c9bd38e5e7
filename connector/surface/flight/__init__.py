"""Arrow Flight SQL: the same queries, gate and limits as over HTTP, for ADBC and JDBC clients."""
