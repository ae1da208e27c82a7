"""Charts of reports: SVG drawn by hand, and Vega-Lite charts rendered to SVG."""
