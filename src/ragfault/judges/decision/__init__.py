"""Judges that ask a model typed questions: a yes or no with its probability. Needs the extra `llm`."""
