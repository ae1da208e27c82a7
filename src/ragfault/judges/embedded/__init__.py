"""The embedded judge: word vectors, boosted trees and a small network, run in numpy."""
