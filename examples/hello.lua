-- glovebox run examples/hello.lua Ada
print(("hello, %s! I am in %s"):format(arg[1] or "world", os.getenv("PWD") or "a sandbox"))
