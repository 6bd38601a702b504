import sys
def f(n):
    return f(n + 1)
# differs: stderr: the session's own frames count too, so the number of repeated lines is another
f(0)
