"""Guard: decide at run time which answers are released, with a bound on the share of bad ones among them."""
