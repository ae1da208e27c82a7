"""The pages of evaluation sets on the server, on which people review, edit and write their items."""
