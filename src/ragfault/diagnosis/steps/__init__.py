"""The faulty step of a trace: what each step did, which one failed first, and how sure that is."""
