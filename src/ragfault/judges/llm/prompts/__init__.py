"""Prompts of the LLM judge: instructions, prompt inputs, fences and injection patterns."""
