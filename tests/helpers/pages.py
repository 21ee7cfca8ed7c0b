"""The pages of the project, their blocks of code, and the command lines in them."""

import re
from pathlib import Path

from tests.helpers import ROOT
from walsh_scrapy.console.commands import COMMANDS

README = ROOT / "README.md"
PAGES = [README, ROOT / "CHANGELOG.md", ROOT / "SECURITY.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
MAKEFILE = (ROOT / "Makefile").read_text("utf-8").replace("$(VENV)", ".venv")
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
#: The command in an entry of a schedule, by the language of the block.
COMMANDS_OF = {
    "cron": re.compile(r"&& (.+)$", re.MULTILINE),
    "ini": re.compile(r"^Exec\w+=(.+)$", re.MULTILINE),
}
#: Programs that set up or inspect a machine or a cluster. tests/docs/test_deployment.py checks
#: their lines, except those of a cluster.
DEPLOYING = ("useradd", "install", "sed", "cp", "systemctl", "journalctl", "podman", "kubectl")
DEPLOYING += ("createuser", "createdb")


def page_of(name):
    """Return the text of a page in docs/."""
    return (ROOT / "docs" / name).read_text("utf-8")


def blocks(page, *languages):
    """Return the blocks of a page in these languages, each with its language."""
    matches = BLOCK.finditer(page.read_text("utf-8"))
    return [(match[2], match[3]) for match in matches if match[2] in languages]


def command_lines():
    """Yield every command line of the pages and the help texts, with its page.

    The script of the tutorial is left out, because test_tutorial.py runs it as a whole.
    """
    for page in PAGES:
        if page.name == "tutorial.md":
            continue
        for language, text in blocks(page, "sh", "cron", "ini"):
            joined = text.replace("\\\n", " ")
            if language != "sh":
                joined = "\n".join(COMMANDS_OF[language].findall(joined))
            for line in joined.splitlines():
                if line.strip():
                    yield page.relative_to(ROOT), line.strip()
    for name, command in COMMANDS.items():
        examples = command.help_text.partition("\n\nexamples:\n")[2].partition("\n\n")[0]
        for line in examples.splitlines():
            yield Path("help", name), line.strip()


#: The lines that restore a backup as a drill: on SQLite, and on PostgreSQL. test_commands.py runs
#: each block as a whole.
DRILLS = [
    text.strip().splitlines()
    for _, text in blocks(ROOT / "docs" / "deployment.md", "sh")
    if "drill" in text
]
#: The lines that find failed jobs of Scrapyd.
FAILED_JOBS = [
    line
    for _, text in blocks(ROOT / "docs" / "deployment.md", "sh")
    if "scrapyd-failed.sh" in text and "install" not in text
    for line in text.strip().splitlines()
]
#: The lines that read a server's log. tests/docs/test_deployment.py runs them.
LINES_OF_LOGS = [
    line
    for _, text in blocks(ROOT / "docs" / "owners.md", "sh")
    if "access.log" in text
    for line in text.replace("\\\n", " ").strip().splitlines()
]
