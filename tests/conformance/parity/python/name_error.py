print('one')
print(undefined_name)
