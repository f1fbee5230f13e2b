"""Lines that programs print on a terminal and that make sense alone: test results, progress, search hits, files."""

import re

_BAR = r"[█▏▎▍▌▋▊▉░▒▓━─╸╺#=>.-]"
OUTPUT_LINE = re.compile(
    "[ \t]{0,8}(?:"
    + "|".join(
        (
            # test results: pytest, unittest, cargo, go, jest, TAP, googletest
            r"[^\s:]{1,300}+::\S.{0,200} (?:PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b",
            r"(?:FAILED|ERROR|PASSED|SKIPPED|XFAIL) [^\s:]{1,200}+(?:::| - |\Z)",
            r"[^\s.]{1,120}\.\w{1,4} [.FEsxX]{1,120}+(?: {1,80}\[ *\d+%\])?\Z",
            r"test \S.{0,200} \.\.\. \w+",
            r"test_\w+ \([\w.]+\).{0,120} \.\.\. \w+",
            r"=== (?:RUN|PAUSE|CONT) |--- (?:PASS|SKIP): ",
            r"(?:ok|FAIL|\?)[ \t]{1,4}\S++[ \t]{1,4}(?:[\d.]+s|\(cached\)|\[)",
            r"(?:PASS|FAIL) {1,2}[^\s.]++\.\w",
            r"[✓✔√✕✗✘○\u00d7] \S",
            r"(?:not )?ok \d+ ",
            r"\[ *(?:OK|RUN|PASSED|FAILED|-{4,}|={4,}) *\]",
            r"={3,}+ .{1,120} ={3,}\Z",
            r"(?:Tests|Test Suites|Snapshots|Test Files):? {1,8}\d",
            # progress: bars, cmake, git, docker, apt, pip, npm
            rf"[^%\n]{{0,80}}+(?<=\d)%[ \t]*+[|\[]{_BAR}",
            r"\[ {0,3}\d{1,3}%\] ",
            r"remote: \S|(?:Receiving|Resolving|Unpacking) (?:objects|deltas): ",
            r"(?:Step \d+/\d+|#\d+ \[[^\]\n]{1,40}\]|#\d+ (?:DONE|CACHED|\d+\.\d+)) ?",
            r"(?:Get|Hit|Ign):\d+ https?:",
            r"(?:Unpacking|Setting up|Preparing to unpack|Selecting previously unselected|Processing triggers for) \S",
            r"(?:Collecting|Downloading|Requirement already satisfied:) [^\s()]{2,200}+(?: \(|\Z)",
            r"Installing collected packages: ",
            r"npm (?:warn|WARN|ERR!|error|notice) ",
            # grep, compilers, linters; ls -l; git status
            r"(?=[^\s:./]{0,80}[./])[^\s:]{2,200}+:\d+(?::\d+)?:(?! ?\d\d\b)",
            r"[-dlcbps][r-][w-][xsS-][r-][w-][xsS-][r-][w-][xtT-][.+@]? +\d+ ",
            r"(?:modified|new file|deleted|renamed|both modified): {2,}\S",
            r"(?:make|ninja|cargo|go)(?:\[\d+\])?: ",
        )
    )
    + ")"
)
