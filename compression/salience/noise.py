"""What is dropped before any content: rules and markers, progress, passed tests, signs of life."""

import re

LONGEST = 240
_MARKER = re.compile(
    r"\[/?[A-Za-z][\w .#:-]{0,40}+\]:?\Z|</?[A-Za-z][\w:-]{0,40}+/?>\Z"
    r"|(?:[Pp]age|Seite|Página) \d{1,4}(?: (?:of|von|de|/) ?\d{1,4})?\Z"
    r"|\(\d{1,9} rows?\)\Z|!{5,}+ [^!\n]{1,80} !{5,}+\Z"
    r"|[-=*#~]{2,}+[ \t]{0,8}[^\W\d_]{1,20}(?: [^\W\d_]{1,20}){0,4}[ \t]{0,8}[-=*#~]{2,}+\Z"
)
_BAR = r"[█▏▎▍▌▋▊▉░▒▓━─╸╺╴#=>.\-]"
_DOING = (
    "Receiving|Resolving|Compressing|Counting|Enumerating|Writing|Unpacking|Downloading|Uploading|Updating files"
    "|Extracting|Progress|Loading|Fetching"
)
_PROGRESS = re.compile(
    # 45%|███   | 45/100; [=====>    ] 45; [ 45%] Building; ━━━━━ 1.2/3.4 MB
    rf"[^%\n]{{0,80}}\d%[ \t]*+[|\[]?{_BAR}{{3,}}|[^\[|\n]{{0,80}}[\[|]{_BAR}{{4,}}[ \t]{{0,40}}[\]|][^\n]{{0,20}}\d"
    r"|\[? {0,3}\d{1,3}(?:\.\d+)? ?%\]?(?: (?!of\b)|\Z)|(?:\S{1,40} ){0,3}[━╸╺─█]{5,}"
    rf"|(?:remote: )?(?:{_DOING})\b[^\n%]{{0,80}}\d ?%"
    # apt and dpkg
    r"|(?:Get|Hit|Ign):\d+ https?:|(?:Reading package lists|Building dependency tree|Reading state information)\.\.\."
    r"|(?:\(Reading database|Preparing to unpack|Selecting previously unselected|Processing triggers for )"
)
_PASSED = re.compile(
    # pytest, unittest, cargo, go, jest, TAP, googletest
    r"[^\s:]{1,200}+::\S.{0,200} PASSED\b|[^\s.]\S{0,200} [.sx]++ *(?:\[ *\d+%\])?\Z|[.sx]{10,} *(?:\[ *\d+%\])?\Z"
    r"|test \S.{0,200} \.\.\. (?:ok|ignored)\Z|test_\w+ \([\w.]+\).{0,120} \.\.\. (?:ok|skipped.{0,80})\Z"
    r"|=== (?:RUN|PAUSE|CONT) |--- (?:PASS|SKIP): |ok[ \t]{1,4}\S+[ \t]{1,4}[\d.]+s"
    r"|\?[ \t]{1,4}\S+[ \t]{1,4}\[no test files\]|PASS(?:\Z|[ \t]+\S+\.\w{2,3}\b)|[✓✔√] |ok \d+\b(?!.{0,80}# TODO)"
    r"|\[ *(?:OK|RUN|PASSED) *\] |\[[-=]{8,}\]"
)
_SIGN_OF_LIFE = re.compile(
    r"(?i)\b(?:heart ?beat(?:ing)?|keep-?alive|health[ _-]?(?:checks?|probes?)|liveness)\b"
    r"|(?i:still (?:running|alive|waiting))\b"
    r"|\bGET /(?:health|healthz|ping|ready|readyz|livez|live|metrics|status)\b"
)


def is_noise(text: str, *, as_line: bool) -> bool:
    """Of a unit's text: a bare marker or, where it is a line of its own, progress or a passed test."""
    if len(text) > LONGEST:
        return False
    if _MARKER.match(text) is not None:
        return True
    return as_line and (_PROGRESS.match(text) is not None or _PASSED.match(text) is not None)


def is_sign_of_life(line: str) -> bool:
    return _SIGN_OF_LIFE.search(line) is not None
