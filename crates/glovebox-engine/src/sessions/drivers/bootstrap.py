import os
head = source = b""
while not head.endswith(b"\n"): head += os.read(3, 1) or os._exit(0)
size = int(head.split()[1])
while len(source) < size: source += os.read(3, size - len(source)) or os._exit(0)
exec(compile(source, "<glovebox>", "exec"), {"__name__": "glovebox", "__builtins__": dict(vars(__builtins__))})
