"""A stub of a language model, for test/snippets/run.sh.

It streams an answer of as many tokens as the prompt asks for words, a hundred at a time, and breaks it off after 6000. It
prints its port.
"""

import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        tokens, took = int(re.search(rb"(\d+) words", body)[1]), 0
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while took < tokens:
            took = min(took + 100, tokens)
            self.event('{"choices": [{"text": "la"}], "usage": {"total_tokens": %d}}' % took)
            if took == 6000:
                self.close_connection = True
                return
        self.event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def event(self, text):
        line = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
print(server.server_port, flush=True)
server.serve_forever()
