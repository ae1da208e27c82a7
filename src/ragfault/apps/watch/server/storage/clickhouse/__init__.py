"""The store on ClickHouse, for traffic that outgrows one machine."""
