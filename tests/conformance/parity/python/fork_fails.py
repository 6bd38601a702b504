import os
if os.fork() == 0:
    raise ValueError('in the child')
print(os.waitstatus_to_exitcode(os.wait()[1]))
