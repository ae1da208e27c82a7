"""Charts of reports and of the dashboard: SVG that takes its colors from the page."""
