import threading, queue
q = queue.Queue()
def work(n):
    q.put(n * 2)
threads = [threading.Thread(target=work, args=(i,)) for i in range(5)]
for t in threads: t.start()
for t in threads: t.join()
print(sorted(q.queue), threading.current_thread().name, threading.current_thread() is threading.main_thread())
