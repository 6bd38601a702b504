from __future__ import annotations
def f(x: Unknown) -> Nothing:
    return x
print(f(1), f.__annotations__)
