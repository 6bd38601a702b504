# differs: stderr: python3 marks one place, a traceback the word
if True:
print('wrong')
