"""What everything shares that speaks HTTP as a server: addresses, security, errors, routes, forms and pages."""
