"""A name server and, behind the only name that it knows, an HTTP server for the files of a folder.

    names.py ADDRESS NAME PORT FOLDER

Both listen on ADDRESS. Each request is printed as "METHOD PATH HOST", so that a test sees that the name was found.
"""

import functools
import http.server
import socket
import struct
import sys
import threading


def answer(question: bytes, name: str, address: str) -> bytes:
    """Answers with the A record of `name`, an empty answer for other types, and NXDOMAIN for other names."""
    labels, at = [], 12
    while question[at]:
        labels.append(question[at + 1 : at + 1 + question[at]].decode().lower())
        at += 1 + question[at]
    kind = struct.unpack(">H", question[at + 1 : at + 3])[0]
    is_known = ".".join(labels) == name
    records = int(is_known and kind == 1)
    head = question[:2] + struct.pack(">5H", 0x8580 if is_known else 0x8583, 1, records, 0, 0)
    record = struct.pack(">3HIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton(address)
    return head + question[12 : at + 5] + record * records


class Files(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_request(self, code="-", size="-"):
        print(self.command, self.path, self.headers.get("Host"), flush=True)


def main():
    address, name, port, folder = sys.argv[1:]
    server = http.server.ThreadingHTTPServer((address, int(port)), functools.partial(Files, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((address, 53))
    while True:
        question, client = udp.recvfrom(4096)
        udp.sendto(answer(question, name, address), client)


main()
