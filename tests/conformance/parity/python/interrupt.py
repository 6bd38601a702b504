# differs: code: python3 ends by the signal that it stands for, a session says 130
raise KeyboardInterrupt
