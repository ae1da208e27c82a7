"""The MiniLM judge: a small language model reads a claim with its evidence. Needs the published weights."""
