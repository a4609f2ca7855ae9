"""Sends unauthorized or invalid requests to the master's link endpoint, and prints the status of each response.

Each argument after the port is `token file or -`,`round`,`connection`,`body in hexadecimal`.
"""

import http.client
import pathlib
import ssl
import sys

trusting = ssl.create_default_context()
trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
for attempt in sys.argv[2:]:
    token, round_, connection, body = attempt.split(",")
    headers = {"ydl-version": "1"}
    if token != "-":
        headers["authorization"] = "Bearer " + pathlib.Path(token).read_text().strip()
    master = http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), timeout=60, context=trusting)
    path = f"/v1/links?round={round_}&connection={connection}&wait_ms=0"
    master.request("POST", path, bytes.fromhex(body), headers)
    print(master.getresponse().status)
