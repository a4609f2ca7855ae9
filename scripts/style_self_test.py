"""Self-test of scripts/style: each violation is found in temporary copies of sources."""

import shutil
import sys
import tempfile
from pathlib import Path

from style_rules import ROOT, check, long_subjects, measure_crate, measure_scripts, measure_tests, rules

# Additions to clean sources, with the rule that each violates.
RUST_COMMENTS = [
    ("/// What it does.\npub fn run() {}\n", "comments with a question word"),
    ("/// Returns true if somebody listens.\npub fn listens() -> bool { true }\n", "pronouns for persons"),
    ("// Nobody reads this.\n", "pronouns for persons"),
]
RUST = [("pub mod inner {\n    pub struct Clean;\n}\n", "type names shared"), *RUST_COMMENTS]
PYTHON = [
    ('def run():\n    """What it does."""\n', "comments with a question word"),
    ("LIMIT = 1\n#: How much may be used.\nUSED = 2\n", "comments with a question word"),
    ('def run():\n    """Runs a program.\n\n    Nobody waits for it.\n    """\n', "pronouns for persons"),
    ("LIMIT = 1  # whoever needs more changes it\n", "pronouns for persons"),
]
SHELL = [("# Whether it exists.\ntrue\n", "comments with a question word"), ("# As everybody knows.\n", "pronouns for persons")]
CLEAN_RUST = '''//! Runs commands.

/// Does nothing.
pub struct Clean;

const TEXT: &str = r#"
/// What is inside a string " is no comment { somebody
struct Clean;
"#;

impl Iterator for Clean {
    type Item = u8;
}

/// Sends a request whose response is ignored. Returns '"' or '{'.
fn send() -> [char; 2] { ['"', '{'] }

#[cfg(test)]
mod tests {
    /// What a test says about somebody is not checked: "}"
    struct Clean;
}
'''
CLEAN_PYTHON = '''#!/usr/bin/env python3
"""Run commands.

What follows in a paragraph is not its opening.
"""

TEXT = """
What is inside a string is no comment. # somebody
"""
NAME = "nobody"


def run(words=("whoever", "# everybody")):
    """Runs a command whose output is ignored."""
    # The last one.
    # Which of them is irrelevant.
    return words
'''
CLEAN_SHELL = "#!/usr/bin/env bash\n# Runs commands.\n# How often is irrelevant.\necho nobody '# somebody'\n"


def self_test():
    """Checks that clean sources pass, that each violation fails them, and that it fails copies of real sources, too."""
    errors, count = [], 0

    def expect(what, found, expected):
        nonlocal count
        count += expected != []
        if found != expected:
            errors.append(f"self-test: {what}: found {found}, expected {expected}")

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        (folder / "src").mkdir()
        cases = [
            ("src/lib.rs", CLEAN_RUST, RUST, lambda path: measure_crate(path.parent, "copy")),
            ("src/test.rs", CLEAN_RUST.replace("What ", "Text ").replace("somebody", "it"), RUST_COMMENTS,
             lambda path: measure_tests(path.parent, "copy")),
            ("module.py", CLEAN_PYTHON, PYTHON, lambda path: measure_scripts([path], "copy")),
            ("script", CLEAN_PYTHON, PYTHON, lambda path: measure_scripts([path], "copy")),
            ("script", CLEAN_SHELL, SHELL, lambda path: measure_scripts([path], "copy")),
        ]
        for name, clean, violations, measure in cases:
            path = folder / name
            for addition, rule in [("", None), *violations]:
                path.write_text(clean + addition, encoding="utf-8")
                expect(f"{name} with {addition!r}", check(rules(measure(path)), quiet=True), [("copy", rule)] if rule else [])
            path.unlink()
        # Limits of crates are not zero, so a copy gets each violation forty times. Python has none.
        shutil.copytree(ROOT / "crates/testbed/src", folder / "crate")
        before = check(rules(measure_crate(folder / "crate", "copy")), quiet=True)
        for addition, rule in RUST[:3]:
            (folder / "crate/added.rs").write_text(addition * 40, encoding="utf-8")
            found = check(rules(measure_crate(folder / "crate", "copy")), quiet=True)
            expect(f"testbed with {rule}", [one for one in found if one not in before], [("copy", rule)])
        shutil.copytree(ROOT / "python/ydl", folder / "python")
        for addition, rule in PYTHON:
            (folder / "python/added.py").write_text(addition, encoding="utf-8")
            found = check(rules(measure_scripts((folder / "python").rglob("*.py"), "copy")), quiet=True)
            expect(f"python/ydl with {addition!r}", found, [("copy", rule)])
    subject = "Skip the lookup when the master rejects the token, and retry"
    for log, expected in (
        ([f"1a2b {subject}"], []),
        ([f"1a2b {subject}.", f"1a2b {subject}."], [("log", "subjects over 60 characters")]),
    ):
        expect(log, check([("log", long_subjects(log))], quiet=True), expected)
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    if not errors:
        print(f"self-test: {count} violations found")
    return not errors
