"""Results of tuning for the terminal and as Markdown: pipelines and generators."""
