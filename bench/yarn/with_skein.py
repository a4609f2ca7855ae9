"""Control skein with lines of JSON: reads one command, prints one response.

{"do": "submit", "tasks": 4, "script": "…"} → {"id": "application_…", "seconds": 1.8}
{"do": "kill", "id": "application_…"}       → {}

The driver, a JVM, starts before the first command and keeps running, so that the time of a submit does not include it.
"""

import json
import sys
import time

import skein


def job(tasks, script):
    size = skein.Resources(memory="128 MiB", vcores=1)
    worker = skein.Service(instances=tasks, resources=size, script=script, max_restarts=-1)
    return skein.ApplicationSpec(name="bench", queue="default", services={"worker": worker})


def main():
    before = time.time()
    with skein.Client(log=False) as client:
        print(json.dumps({"driver_seconds": time.time() - before}), flush=True)
        for line in sys.stdin:
            command = json.loads(line)
            response = {}
            if command["do"] == "submit":
                spec = job(command["tasks"], command["script"])
                before = time.time()
                response["id"] = client.submit(spec)
                response["seconds"] = time.time() - before
            elif command["do"] == "kill":
                client.kill_application(command["id"])
            print(json.dumps(response), flush=True)


if __name__ == "__main__":
    main()
