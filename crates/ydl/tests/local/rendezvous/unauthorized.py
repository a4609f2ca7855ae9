"""Send unauthorized or invalid requests to the master's link endpoint, and print the status of each response.

Each argument after the port is `token file or -`,`round`,`session`,`body in hexadecimal`.
"""

import http.client
import pathlib
import ssl
import sys

context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
for request in sys.argv[2:]:
    token, round_, session, body = request.split(",")
    headers = {"ydl-version": "1"}
    if token != "-":
        headers["authorization"] = "Bearer " + pathlib.Path(token).read_text().strip()
    master = http.client.HTTPSConnection("127.0.0.1", int(sys.argv[1]), timeout=60, context=context)
    path = f"/v1/links?round={round_}&session={session}&wait_ms=0"
    master.request("POST", path, bytes.fromhex(body), headers)
    print(master.getresponse().status)
