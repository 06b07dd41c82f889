# The library ships no types, and stubs by others describe an older one: to the checker, everything
# in it is Any. Goes when the library ships types.
from typing import Any

def __getattr__(name: str) -> Any: ...
