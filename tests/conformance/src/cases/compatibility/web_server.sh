# A server and clients on loopback: python and node, IPv4, and a unix socket.
mkdir site && echo 'hello from a server' > site/index.txt
cat > main.py <<'END'
import functools, http.server, socket, socketserver, threading, urllib.request, os
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="site")
http.server.SimpleHTTPRequestHandler.log_message = lambda *a: None
with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
    threading.Thread(target=server.serve_forever).start()
    for _ in range(20):
        text = urllib.request.urlopen(f"http://localhost:{server.server_port}/index.txt").read()
    print(text.decode(), end="")
    server.shutdown()
class Echo(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.readline().upper())
with socketserver.UnixStreamServer("echo.sock", Echo) as server:
    threading.Thread(target=server.serve_forever).start()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("echo.sock"); client.sendall(b"over a unix socket\n"); print(client.recv(100).decode(), end="")
    server.shutdown()
END
python3 main.py
cat > main.mjs <<'END'
import http from "http";
const server = http.createServer((request, response) => response.end(`node got ${request.url}`));
await new Promise(ready => server.listen(0, "127.0.0.1", ready));
const answers = await Promise.all([1, 2, 3].map(n => fetch(`http://127.0.0.1:${server.address().port}/${n}`).then(r => r.text())));
console.log(answers.join("\n"));
server.close();
END
node main.mjs
