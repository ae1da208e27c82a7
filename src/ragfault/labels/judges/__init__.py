"""A judge beside people: measured, compared, calibrated, and compared with itself."""
