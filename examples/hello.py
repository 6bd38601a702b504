"""Says hello from inside a sandbox: glovebox run examples/hello.py Ada"""

import os
import sys

name = sys.argv[1] if len(sys.argv) > 1 else "world"
print(f"hello, {name}! I am uid {os.getuid()} in {os.getcwd()}")
