"""Commands on evaluation sets."""
