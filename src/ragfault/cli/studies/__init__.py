"""Commands that study a part of a system on its own."""
