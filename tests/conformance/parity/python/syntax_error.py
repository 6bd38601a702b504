x = 1
print('never'
y = 2
