"""Rules of scripts/style: figures and offences of Rust crates, tests, Python sources, shell scripts and commit subjects."""

import io
import re
import tokenize
from pathlib import Path

from rust_sources import sources

ROOT = Path(__file__).resolve().parent.parent

# Per crate: type names that belong to several types, and doc comments that open with a question word, in percent of all.
SHARED_TYPES, QUESTION_DOCS = 3, 2
# Per crate: indefinite pronouns for persons in 1,000 lines of comments. Python sources and scripts must have none.
PRONOUNS = 2
MAX_SUBJECT = 60

TYPE = re.compile(r"\s*(?:pub(?:\([^)]*\))? )?(?:unsafe )?(struct|enum|trait|type|union) (\w+)")
QUESTION = re.compile(r"(What|Who|Whose|Whom|How|Whether|Which|Whatever|Whoever)\b")
PRONOUN = re.compile(r"\b(some|no|every|any)(body|one)\b|\bno one\b|\bwho(m)?ever\b|\bwhosoever\b", re.IGNORECASE)


class Figures:
    """Figures and offences of one crate or group of files."""

    def __init__(self, name, limits=(QUESTION_DOCS, PRONOUNS)):
        self.name, self.limits = name, limits
        self.types, self.docs, self.comments = {}, 0, 0
        self.questions, self.pronouns = [], []

    def add_type(self, name, location):
        self.types.setdefault(name, []).append(location)

    def add_comment(self, text, location, opens):
        """Adds one line of a comment, without its marker. `opens` is true for the first line of documentation."""
        self.comments += 1
        if opens:
            self.docs += 1
            if QUESTION.match(text):
                self.questions.append(f"{location}: comment opens with a question word: {text}")
        if PRONOUN.search(text):
            self.pronouns.append(f"{location}: pronoun for a person: {text}")

    def offences(self):
        """Yields the figure, the limit and the offences of each rule."""
        if self.types:
            total = sum(len(locations) for locations in self.types.values())
            shared = {name: locations for name, locations in self.types.items() if len(locations) > 1}
            count = sum(len(locations) for locations in shared.values())
            listed = [f"{location}: type name `{name}` is used {len(locations)} times"
                      for name, locations in shared.items() for location in locations]
            yield "type names shared", count, total, 100 * count / total, SHARED_TYPES, "%", listed
        question_limit, pronoun_limit = self.limits
        count = len(self.questions)
        yield "comments with a question word", count, self.docs, 100 * count / max(self.docs, 1), question_limit, "%", self.questions
        count = len(self.pronouns)
        figure = 1000 * count / max(self.comments, 1)
        yield "pronouns for persons", count, self.comments, figure, pronoun_limit, "per 1,000 lines", self.pronouns


def relative(path):
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def add_rust_comments(figures, path, lines):
    """Adds the line comments of a Rust file, given as `(number, line)`."""
    in_docs = False
    for number, line in lines:
        text = line.strip()
        if not text.startswith("//"):
            in_docs = False
            continue
        is_doc = re.match(r"//[/!](?!/)", text) is not None
        figures.add_comment(text.lstrip("/!").strip(), f"{relative(path)}:{number}", is_doc and not in_docs)
        in_docs = is_doc


def measure_crate(src, name):
    figures = Figures(name)
    for path, lines in sources(src):
        add_rust_comments(figures, path, [(number, line) for number, line, _ in lines])
        for number, _, code in lines:
            declared = TYPE.match(code)
            # An indented `type` is an associated type, whose name the trait gives.
            if declared and not (declared.group(1) == "type" and code.startswith(" ")):
                figures.add_type(declared.group(2), f"{relative(path)}:{number}")
    return figures


def measure_tests(folder, name):
    figures = Figures(name)
    for path in sorted(folder.rglob("*.rs")):
        add_rust_comments(figures, path, enumerate(path.read_text(encoding="utf-8").split("\n"), 1))
    return figures


def python_comments(text):
    """Yields line number, text and whether it opens a comment, for all lines of docstrings and comments."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    statement_starts, last_comment = True, 0
    for token, following in zip(tokens, tokens[1:]):
        number = token.start[0]
        if token.type == tokenize.COMMENT:
            if not token.string.startswith("#!"):
                yield number, token.string.lstrip("#: "), number != last_comment + 1
            last_comment = number
        elif token.type == tokenize.STRING and statement_starts and following.type == tokenize.NEWLINE:
            for offset, line in enumerate(token.string.strip("rRbBuU\"'").split("\n")):
                yield number + offset, line.strip(), offset == 0
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            statement_starts = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def shell_comments(text):
    """Yields line number, text and whether it opens a comment, for all lines that are comments."""
    last_comment = 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip().startswith("#") and not line.startswith("#!"):
            yield number, line.strip().lstrip("# "), number != last_comment + 1
            last_comment = number


def measure_scripts(paths, name):
    """Returns the figures of Python and shell sources, which may have no offence. Other files are ignored."""
    figures = Figures(name, limits=(0, 0))
    for path in paths:
        if not path.is_file() or "__pycache__" in path.parts:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        first = text.split("\n", 1)[0]
        is_python = path.suffix == ".py" or re.match(r"#!.*python", first)
        if not is_python and not re.match(r"#!.*sh\b", first):
            continue
        for number, line, opens in python_comments(text) if is_python else shell_comments(text):
            figures.add_comment(line, f"{relative(path)}:{number}", opens)
    return figures


def long_subjects(log):
    """Returns the rule about commit subjects for lines of `hash subject`, as in `Figures.offences`."""
    commits = [line.split(" ", 1) for line in dict.fromkeys(log) if " " in line]
    listed = [f"{commit}: subject has {len(subject)} characters: {subject}"
              for commit, subject in commits if len(subject) > MAX_SUBJECT]
    return f"subjects over {MAX_SUBJECT} characters", len(listed), len(commits), len(listed), 0, "commits", listed


def check(measured, quiet=False):
    """Prints all offences and figures of `(name, rule)` pairs; returns the names and rules that are violated."""
    violated = []
    for name, (rule, count, total, figure, limit, unit, listed) in measured:
        failed = figure > limit
        if failed:
            violated.append((name, rule))
        if not quiet:
            for offence in listed:
                print(offence)
            print(f"{'FAILED' if failed else 'ok':7} {name}: {rule}: {count} of {total}, {figure:.1f} {unit} (limit {limit})")
    return violated


def rules(*groups):
    """Yields `(name, rule)` for all rules of figures."""
    for figures in groups:
        for rule in figures.offences():
            yield figures.name, rule
