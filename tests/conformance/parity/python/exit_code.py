import sys
print('before')
sys.exit(42)
print('after')
