import subprocess, sys
print(subprocess.run(['sh', '-c', 'echo out; exit 3'], capture_output=True).returncode)
sys.stdout.flush()
subprocess.run(['echo', 'direct'])
print(subprocess.check_output([sys.executable, '-c', 'print(6 * 7)'], text=True), end='')
subprocess.run(['false'], check=True)
