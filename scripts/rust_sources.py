"""Reads Rust sources for scripts/style: lines outside of test modules, and code without comments and literals."""

import re
import sys

GENERATED = ["yarn-native/src/proto"]
TEST_MODULE = re.compile(r"(?:pub(?:\([^)]*\))? )?mod (\w+)\s*(;|\{)")


def blank(line, state):
    """Returns the code of a line without comments and literals.

    The state holds the depth of block comments and the pattern that ends or escapes in the current string.
    """
    code, at = [], 0
    while at < len(line):
        if state["comment"]:
            match = re.compile(r"/\*|\*/").search(line, at)
            if not match:
                return "".join(code)
            state["comment"] += 1 if match.group() == "/*" else -1
            at = match.end()
        elif state["string"] is not None:
            match = re.compile(state["string"]).search(line, at)
            if not match:
                return "".join(code)
            if not match.group().startswith("\\"):
                state["string"] = None
            at = match.end()
        else:
            raw = re.compile(r'\bb?c?r(#*)"').match(line, at)
            char = re.compile(r"b?'(?:\\(?:u\{[0-9a-fA-F_]+\}|x..|.)|[^\\'])'").match(line, at)
            if line.startswith("//", at):
                return "".join(code)
            if line.startswith("/*", at):
                state["comment"], at = 1, at + 2
            elif raw:
                state["string"], at = '"' + raw.group(1), raw.end()
            elif line[at] == '"':
                state["string"], at = r'\\.|"', at + 1
            elif char:
                at = char.end()
            else:
                code.append(line[at])
                at += 1
    return "".join(code)


def source_lines(path):
    """Returns `(number, line, code)` outside of test modules, and the names of test modules in their own files."""
    lines, files = [], set()
    state = {"comment": 0, "string": None}
    in_tests, depth, is_test = False, 0, False
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        inside = state["string"] is not None
        code = blank(line, state)
        if in_tests:
            depth += code.count("{") - code.count("}")
            in_tests = depth > 0
            continue
        text = code.strip()
        module = TEST_MODULE.match(text)
        if text.startswith("#["):
            is_test = is_test or re.match(r"#\[cfg\((test|all\(test\b.*)\)\]", text) is not None
            text = text.partition("]")[2].strip()
            module = TEST_MODULE.match(text)
        if is_test and module:
            is_test = False
            if module.group(2) == ";":
                files.add(module.group(1))
                continue
            depth = code.count("{") - code.count("}")
            in_tests = depth > 0
            continue
        if text:
            is_test = False
        # A line that continues a string may look like a comment or a type.
        lines.append((number, "" if inside else line, code))
    # Otherwise the rest of the file would be ignored silently.
    if state["comment"] or state["string"] is not None or in_tests:
        sys.exit(f"error: {path}: unterminated comment, string or test module")
    return lines, files


def sources(src):
    """Yields the lines of all files of a crate, without tests and generated code."""
    read, tests = {}, set()
    for path in sorted(src.rglob("*.rs")):
        if any(part in path.as_posix() for part in GENERATED):
            continue
        read[path], files = source_lines(path)
        home = path.parent if path.name in ("mod.rs", "lib.rs", "main.rs") else path.with_suffix("")
        for name in files:
            tests.update((home / f"{name}.rs", home / name))
    for path, lines in read.items():
        if path not in tests and not tests.intersection(path.parents):
            yield path, lines
