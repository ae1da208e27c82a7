"""The page of adaptation on the server: a policy, and what its decisions brought on live traffic."""
