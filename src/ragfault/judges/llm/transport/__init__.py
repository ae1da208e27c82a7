"""Transport of model calls: endpoint client, concurrency limiter, reply cache and budget."""
