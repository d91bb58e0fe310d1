"""Draws text of a crate for a review: `python docs/draw.py comments|messages|marks|long FOLDER [COUNT] [SEED]`.

`comments` prints COUNT comment blocks (40 by default) and `messages` COUNT error messages (60), each with its
file and line. The same SEED gives the same draw. `marks` prints each comment block that CONTRIBUTING's
"Style" section would change by one of its words, and `long` each sentence of more than 25 words.
"""

import random
import re
import subprocess
import sys

MARKS = re.compile(
    r"\bof which\b|\bof whom\b|\banew\b|\bbeside\b|\bso (many|much|few|long)\b|\blies?\b|\bapart\b|\bsettled?s?\b"
    r"|\bat hand\b|\bbesides\b|\bnothing of\b|\bthat of\b.*\bthat of\b|\bof its own\b.*\bof its own\b"
    r"|(^|[.:;] )(What|Which|Who|Whom|Whose|Wherever|That which)\b(?![^.]*\?)"
    r"|\b(of|by|from|with|as|to|than|for|in|is|are|and|or|at|on|but|like|says|takes|gives|holds|needs|has|into|that|past|over) what\b"
    r"|(^|[.] )(Of|By|As|For|Where|In|At|To) (what|which|those|that|such)\b"
)


def files(folder):
    names = subprocess.run(["git", "ls-files", folder], capture_output=True, text=True, check=True).stdout.split()
    return [name for name in names if name.endswith((".rs", ".rules", ".cu", ".wgsl"))]


def comments(folder):
    """Yields (place, text) of each run of comment lines of one kind."""
    for name in files(folder):
        start, kind, lines = 0, None, []
        for number, line in enumerate(open(name, encoding="utf-8").read().split("\n") + [""], 1):
            found = re.match(r"\s*(///|//!|//|;;+)( ?.*)$", line)
            if found and (kind is None or kind == found[1]):
                start, kind = start or number, found[1]
                lines.append(found[2].strip())
                continue
            if lines:
                yield f"{name}:{start}", "\n".join(lines)
            start, kind, lines = (number, found[1], [found[2].strip()]) if found else (0, None, [])


def messages(folder):
    """Yields (place, text) of each string that an error is made of, by its form: two words at least, no test."""
    maker = re.compile(r"#\[error|Error|error|Err\(|bail!|anyhow!|problem|fault|refus|invalid|\.expect\(|cannot|must|unsupported|ok_or|wrong", re.I)
    for name in files(folder):
        if not name.endswith(".rs") or "/tests" in name or name.endswith("tests.rs"):
            continue
        source = open(name, encoding="utf-8").read().split("#[cfg(test)]\nmod tests {")[0]
        lines = source.split("\n")
        for found in re.finditer(r'(?<![r#\'\\])"((?:[^"\\\n]|\\.|\\\n)*)"', source):
            number = source.count("\n", 0, found.start())
            text = re.sub(r"\\\n\s*", "", found[1])
            near = "\n".join(lines[max(0, number - 2) : number + 1])
            if lines[number].lstrip().startswith("//") or len(re.findall(r"[a-z]{2,} ", text)) < 2:
                continue
            if maker.search(near) or maker.search(text):
                yield f"{name}:{number + 1}", text


def sentences(text):
    prose = re.sub(r"```.*?```", "", text, flags=re.S)
    return [s for s in re.split(r"(?<=[.:;?!])\s+|\n\n|\n(?=[-*|])", prose) if s.strip()]


def main():
    sort, folder = sys.argv[1], sys.argv[2]
    count = int(sys.argv[3]) if len(sys.argv) > 3 else {"comments": 40, "messages": 60}.get(sort, 0)
    seed = sys.argv[4] if len(sys.argv) > 4 else "1"
    if sort in ("comments", "messages"):
        found = list(comments(folder) if sort == "comments" else messages(folder))
        drawn = random.Random(f"{seed} {folder}").sample(found, min(count, len(found)))
    else:
        found = list(comments(folder))
        test = MARKS.search if sort == "marks" else lambda t: any(len(s.split()) > 25 for s in sentences(t))
        drawn = [(place, text) for place, text in found if test(text.replace("\n", " ") if sort == "marks" else text)]
    for place, text in drawn if count or sort not in ("marks", "long") else []:
        print(f"{place}\n    " + text.replace("\n", "\n    "))
    print(f"{len(drawn)} of {len(found)} in {folder}", file=sys.stderr)


if __name__ == "__main__":
    main()
