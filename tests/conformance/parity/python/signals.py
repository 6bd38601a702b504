import os, signal
signal.signal(signal.SIGUSR1, lambda number, frame: print('got', number))
os.kill(os.getpid(), signal.SIGUSR1)
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)
signal.alarm(0)
