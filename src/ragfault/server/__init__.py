"""The server: takes live traces, scores them, watches them, and shows what it saw (extra `server`).

`app(Settings(store=PATH))` is a FastAPI application; `run(settings)` serves it until it is told to end.
"""

from ragfault.server.access import issue
from ragfault.server.application import app
from ragfault.server.desk import Desk
from ragfault.server.running import run
from ragfault.server.settings import Limits, Settings

__all__ = ["Desk", "Limits", "Settings", "app", "issue", "run"]
