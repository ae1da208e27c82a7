"""Reports as GitHub-flavored Markdown."""
