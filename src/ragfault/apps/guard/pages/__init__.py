"""The page of the guard on the server: its decisions on live traffic."""
