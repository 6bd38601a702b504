import sys
# differs: stdout: a session has no file, so argv[0] is empty
print(sys.argv)
print(len(sys.argv))
