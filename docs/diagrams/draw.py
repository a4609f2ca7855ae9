#!/usr/bin/env python3
"""Draw the diagrams of the concept pages: docs/diagrams/draw.py writes docs/concepts/*.svg."""

from html import escape
from pathlib import Path

OUTPUT = Path(__file__).resolve().parent.parent / "concepts"
FONT = "DejaVu Sans, Verdana, sans-serif"
INK, LINE = "#1f2937", "#475569"
FILLS = {
    "plain": "#ffffff", "grey": "#f1f5f9", "blue": "#dbeafe", "green": "#dcfce7",
    "amber": "#fef3c7", "red": "#fee2e2", "violet": "#ede9fe",
}


class Drawing:
    """Elements of an SVG image."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.parts = width, height, title, []

    def box(self, x, y, w, h, text="", fill="plain", size=14, bold=False, top=False, dash=False):
        """Draws a rectangle with lines of text in its middle, or at its top."""
        dashes = ' stroke-dasharray="6 4"' if dash else ""
        self.parts.append(
            f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" fill="{FILLS[fill]}" stroke="{LINE}"{dashes}/>'
        )
        lines = text.split("\n") if text else []
        step = size * 1.35
        first = y + size + 7 if top else y + h / 2 - step * (len(lines) - 1) / 2 + size * 0.36
        for number, line in enumerate(lines):
            self.text(x + w / 2, first + number * step, line, size if number == 0 or not top else size - 2,
                      bold=bold and number == 0)

    def text(self, x, y, text, size=13, anchor="middle", bold=False, colour=INK):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(text)}</text>'
        )

    def arrow(self, *points, text="", at=None, dash=False, both=False, anchor="middle"):
        """Draws a line through the points with a head at its end."""
        path = "M" + " L".join(f"{x} {y}" for x, y in points)
        dashes = ' stroke-dasharray="6 4"' if dash else ""
        start = ' marker-start="url(#head)"' if both else ""
        self.parts.append(
            f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.6"{dashes}{start} marker-end="url(#head)"/>'
        )
        if text:
            (x0, y0), (x1, y1) = points[0], points[1]
            x, y = at or ((x0 + x1) / 2, (y0 + y1) / 2 - 6)
            for number, line in enumerate(text.split("\n")):
                self.text(x, y + number * 15, line, 12, anchor)

    def line(self, x0, y0, x1, y1):
        self.parts.append(
            f'<path d="M{x0} {y0} L{x1} {y1}" stroke="#94a3b8" stroke-dasharray="3 4" fill="none"/>'
        )

    def write(self, name):
        body = "\n".join(self.parts)
        OUTPUT.joinpath(name).write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" font-family="{FONT}" role="img">\n'
            f"<title>{escape(self.title)}</title>\n"
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            f'orient="auto-start-reverse"><path d="M0 0 L10 5 L0 10 z" fill="{LINE}"/></marker></defs>\n'
            f'<rect width="{self.width}" height="{self.height}" rx="8" fill="#ffffff"/>\n{body}\n</svg>\n',
            encoding="utf-8",
        )


def job():
    d = Drawing(820, 400, "A job has roles, a role has tasks, a task has attempts")
    d.box(20, 20, 780, 360, "job  digits", "grey", bold=True, top=True)
    d.box(40, 60, 460, 230, "role  worker   instances: 3", "blue", top=True)
    d.box(520, 60, 260, 230, "role  server   instances: 1", "violet", top=True)
    for number, x in enumerate((60, 205, 350)):
        d.box(x, 100, 130, 170, f"task  worker:{number}", "plain", top=True)
    d.box(545, 100, 210, 170, "task  server:0", "plain", top=True)
    for x, w in ((70, 110), (215, 110), (360, 110), (555, 190)):
        failed = x == 215
        d.box(x, 145, w, 46, "attempt 1\nexit 1" if failed else "attempt 1\nstopped", "red" if failed else "amber", 12)
        d.box(x, 208, w, 46, "attempt 2\nrunning", "green", 12)
    d.line(40, 199, 780, 199)
    d.box(40, 305, 740, 60, "round 1: attempts 1 of all tasks.  worker:1 failed.\nround 2: attempts 2 of all tasks. Indexes and ranks stay.",
          "plain", 13, dash=True)
    d.write("job.svg")


def cluster():
    d = Drawing(860, 470, "The processes of a job on a cluster")
    d.box(20, 40, 170, 90, "client\nydl submit", "grey", bold=True)
    d.box(20, 330, 170, 110, "HDFS\nfiles, journal,\nlogs, outputs", "amber", bold=True)
    d.box(310, 20, 220, 70, "ResourceManager", "grey", bold=True)
    d.box(270, 160, 300, 110, "container of the master", "grey", 12, top=True, dash=True)
    d.box(300, 192, 240, 64, "ydl master\nkeeps the state, serves rendezvous", "blue", 12)
    for number, y in enumerate((20, 250)):
        d.box(650, y, 190, 200, f"container of worker:{number}", "grey", 12, top=True, dash=True)
        d.box(670, y + 34, 150, 40, "ydl agent", "blue", 13)
        d.box(670, y + 92, 150, 40, "ydl shim", "violet", 13)
        d.box(670, y + 148, 150, 40, "your program", "green", 13)
        d.arrow((745, y + 74), (745, y + 92))
        d.arrow((745, y + 132), (745, y + 148))
    d.arrow((190, 62), (310, 50), text="submit", at=(250, 46))
    d.arrow((190, 110), (300, 205), text="status,\nlogs (TLS)", at=(150, 172), both=True, anchor="start")
    d.arrow((105, 130), (105, 330), text="upload once", at=(112, 240), anchor="start")
    d.arrow((420, 160), (420, 90), text="asks, grants", at=(466, 130), both=True)
    d.arrow((540, 205), (670, 80), both=True)
    d.arrow((540, 240), (670, 300), text="", both=True)
    d.text(610, 186, "reports,", 12)
    d.text(610, 202, "orders (TLS)", 12)
    d.arrow((300, 256), (190, 350), text="journal", at=(216, 304), anchor="end")
    d.arrow((650, 400), (190, 400), text="logs, outputs, checkpoints", at=(420, 393))
    d.write("cluster.svg")


def lifecycle():
    d = Drawing(860, 640, "Lifecycle of a job, from submit to its end")
    lanes = [("client", 90), ("master", 300), ("cluster or this machine", 520), ("agent", 690), ("program", 801)]
    for name, x in lanes:
        w = 200 if len(name) > 10 else 90
        d.box(x - w / 2, 15, w, 32, name, "blue" if name in ("client", "master", "agent") else "grey", 13, bold=True)
        d.line(x, 47, x, 625)
    at = dict(lanes)
    c, m, b, a, p = (at[name] for name, _ in lanes)

    def step(y, start, end, text, dash=False):
        d.arrow((start, y), (end, y), text=text, at=((start + end) / 2, y - 6), dash=dash)

    d.box(20, 62, 140, 34, "check the job file", "plain", 12)
    step(122, c, m, "start the master")
    step(152, m, b, "request containers")
    step(182, b, a, "start agents")
    d.box(625, 198, 130, 48, "download inputs,\nreserve ports", "plain", 12)
    step(276, a, m, "ready, at this address")
    d.box(215, 290, 170, 34, "all ready: round 1", "green", 12)
    step(352, m, a, "run: peers, ranks")
    step(382, a, p, "start")
    d.box(762, 396, 78, 40, "train", "green", 12)
    step(462, p, a, "exit")
    step(490, a, m, "exit code")
    d.box(205, 504, 190, 48, "failed: new round or end\nsucceeded: end", "amber", 12)
    step(582, m, a, "copy outputs, stop")
    step(612, m, c, "outcome, exit code")
    d.write("life.svg")


def failures():
    d = Drawing(860, 430, "Decisions after the end of an attempt")
    d.box(330, 15, 200, 44, "an attempt ended", "grey", 14, bold=True)
    d.box(20, 100, 230, 78, "ended by the cluster\npreempted, node lost,\nreleased", "blue", 13)
    d.box(315, 100, 230, 78, "node failure\nno launch, agent lost,\nno disk", "violet", 13)
    d.box(610, 100, 230, 78, "program failure\nexit code, signal,\nmemory limit", "red", 13)
    for x in (135, 430, 725):
        d.arrow((430, 59), (430, 78), (x, 78), (x, 100))
    d.box(20, 230, 230, 60, "not counted", "plain", 13)
    d.box(315, 230, 230, 60, "not counted before five\nconsecutive failures;\nthe node is excluded", "plain", 12)
    d.box(610, 230, 230, 60, "counted against\nrestart: limit", "plain", 13)
    for x in (135, 430, 725):
        d.arrow((x, 178), (x, 230))
    d.box(20, 350, 525, 60, "start again in the restart scope: the task, its role, or the job in a new round", "green", 12)
    d.box(610, 350, 230, 60, "the job fails", "red", 14, bold=True)
    d.arrow((135, 290), (135, 350))
    d.arrow((430, 290), (430, 350))
    d.arrow((640, 290), (500, 350), text="restarts left", at=(540, 312), anchor="end")
    d.arrow((725, 290), (725, 350), text="none left", at=(733, 324), anchor="start")
    d.write("failures.svg")


def rendezvous():
    d = Drawing(860, 400, "A framework's rendezvous is served by the master")
    d.box(320, 20, 220, 110, "ydl master\n\nscheduler, tracker\nor store of the framework", "blue", 13, bold=True)
    for number, x in enumerate((30, 320, 610)):
        d.box(x, 190, 220, 178, fill="grey", dash=True)
        d.text(x + 20, 210, f"node {'ABC'[number]}", 12, "start")
        d.box(x + 20, 222, 180, 46, "agent\nloopback port", "blue", 12)
        d.box(x + 20, 318, 180, 46, f"program, rank {number}", "green", 13)
        d.arrow((x + 60, 318), (x + 60, 268), text="framework's\nown protocol", at=(x + 70, 290), both=True, anchor="start")
    d.arrow((140, 222), (140, 90), (320, 90), both=True)
    d.arrow((430, 222), (430, 130), both=True)
    d.arrow((720, 222), (720, 90), (540, 90), both=True)
    d.text(170, 80, "TLS", 12)
    d.text(690, 80, "TLS", 12)
    d.text(446, 170, "TLS", 12, "start")
    d.arrow((230, 352), (340, 352), both=True)
    d.arrow((520, 352), (630, 352), both=True)
    d.text(430, 388, "gradients and data: directly between programs", 12)
    d.write("rendezvous.svg")


if __name__ == "__main__":
    for draw in (job, cluster, lifecycle, failures, rendezvous):
        draw()
