"""Models of providers, each in a module of its own that imports its vendor's library.

Install the extra of the same name: ``helix-temporal[anthropic]``, ``[langchain]``, …  Nothing here imports
a vendor's library, so that one adapter never asks for another's.
"""

from helix_temporal.adapters._by_key import model_by_key

__all__ = ["model_by_key"]
