print('before')
print('\ud800')
