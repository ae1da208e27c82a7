"""Choose, tune and prove the generator: by replay of recorded answers or by calls, on questions held out."""
