import os
os.environ['OWN'] = 'set'
print(os.environ['OWN'], os.system('echo $OWN'), os.getcwd() == os.path.realpath('.'))
os.chdir('/')
print(os.getcwd())
