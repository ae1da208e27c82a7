"""JSON API of the server: views of the stored data, their routes, the OpenAPI document and Prometheus metrics."""
