"""Vector stores: dense search by the client of a database that is run elsewhere, and the loss by approximate search."""
