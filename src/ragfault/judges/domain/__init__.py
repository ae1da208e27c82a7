"""Domain profiles: identifiers and thresholds that a domain demands of a judge."""
