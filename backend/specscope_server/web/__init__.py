"""The pages: view models, templates' context and routes."""

from specscope_server.web.routes import router

__all__ = ["router"]
