"""Guarded frameworks and endpoints: ASGI applications, a proxy, OpenAI clients, LangChain and LlamaIndex."""
