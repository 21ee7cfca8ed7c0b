"""What the commands share that ask servers, through the gates, and answer by what was learned."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from scrapy.commands import ScrapyCommand
from scrapy.settings import Settings

from walsh_scrapy.tools.endings import wrong_call

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from scrapy import Spider

    from walsh_scrapy.runtime.context import Context


class Question(ScrapyCommand):
    """A command about URLs, whose exit status is the answer: 0 yes, 1 no, 2 cannot say.

    Not among the commands: Scrapy lists every class it finds there.
    """

    requires_project = True

    longest_wait: ClassVar[int]  #: seconds; of a host that wants more the answer is "when"
    example: ClassVar[str]

    def syntax(self) -> str:
        """Return what follows the command's name."""
        return "[options] URL [URL ...]"

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        """Keep the log to what is worth a line beside the answers."""
        super().process_options(args, opts)
        if self.settings is not None:
            self.settings.set("WALSH_MAX_WAIT", self.longest_wait, priority="command")
            if opts.loglevel is None:
                self.settings.set("LOG_LEVEL", "WARNING", priority="cmdline")

    def check_call(self, args: list[str]) -> None:
        """End with one line and 2 if no URL was given, or an option that is none."""
        if not args:
            wrong_call(f"which URL? Example: {self.example}")
        for word in args:
            if word.startswith("-"):
                command = " ".join(self.example.split()[:2])
                wrong_call(f"there is no option {word}; see {command} --help")

    def opened(self) -> Context:
        """Return what the gates know, or end with one line and 2 if the settings forbid it."""
        from walsh_scrapy.options import BadSetting, Options
        from walsh_scrapy.runtime.context import Context
        from walsh_scrapy.runtime.startup import check_gates
        from walsh_scrapy.state import State, StateError

        settings = self.settings or Settings()
        try:
            check_gates(settings)
            options = Options.from_settings(settings)
            return Context(options, State(options.state_url))
        except (BadSetting, StateError) as error:
            wrong_call(str(error))

    def ask(self, spider: type[Spider], **arguments: object) -> None:
        """Run a spider that asks what the answer needs, to its end."""
        if self.crawler_process is not None:
            self.crawler_process.crawl(spider, **arguments)
            self.crawler_process.start()

    def conclude(self, verdicts: Iterable[bool | None]) -> None:
        """Set the exit status; one no outweighs what cannot be said."""
        given = set(verdicts)
        self.exitcode = 1 if False in given else 2 if None in given else 0
