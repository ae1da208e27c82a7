"""Server that stores live traces, scores them, raises alerts and serves the dashboard (extra `server`)."""

from ragfault.server.app import create_app, run_server
from ragfault.server.security import issue_token
from ragfault.server.settings import RequestLimits, ServerSettings

__all__ = ["RequestLimits", "ServerSettings", "create_app", "issue_token", "run_server"]
