"""The Scrapy settings of this project, in the order of Scrapy's template.

What the contract demands is not here but in ``addon.py``, which sets it above every other
priority; what an operator may choose begins with ``WALSH_`` and is in ``docs/settings.md``.
"""

from scrapy.settings.default_settings import EXTENSIONS_BASE as _EXTENSIONS_BASE

BOT_NAME = "walsh_scrapy"

SPIDER_MODULES = ["spiders"]
NEWSPIDER_MODULE = "spiders"
COMMANDS_MODULE = "walsh_scrapy.commands"

ADDONS = {"walsh_scrapy.addon.Addon": 500}

# These have nothing left to do behind our gates, and a share in what each request and item costs.
DOWNLOADER_MIDDLEWARES = {
    "scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": None,  # scope knows the targets
    "scrapy.downloadermiddlewares.httpauth.HttpAuthMiddleware": None,  # identity sends none
    "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None,  # identity sets it
}
SPIDER_MIDDLEWARES = {
    # It would drop a declared target with a long URL, with no word to whoever declared it.
    "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware": None,
    # No links are followed.
    "scrapy.spidermiddlewares.depth.DepthMiddleware": None,
    "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware": None,
}
# The add-on switches these off. What is merely set to None is loaded all the same, and one of them
# brings a web server along that takes longer to load than Scrapy.
_UNUSED = (
    "scrapy.extensions.remote_control.RemoteControl",
    "scrapy.extensions.telnet.TelnetConsole",
    "scrapy.extensions.throttle.AutoThrottle",
)
EXTENSIONS_BASE = {path: order for path, order in _EXTENSIONS_BASE.items() if path not in _UNUSED}

# Every line that an operator may want at two in the morning, and no more (was: DEBUG).
LOG_LEVEL = "INFO"
LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
LOG_SHORT_NAMES = True
LOG_FORMATTER = "walsh_scrapy.logformatter.QuietLogFormatter"
# The summary says what a run did; Scrapy's own numbers stay available with -s STATS_DUMP=1.
STATS_DUMP = False
LOGSTATS_INTERVAL = 0

# A host that keeps us hanging keeps every other waiting (was: 180, and two more tries).
DOWNLOAD_TIMEOUT = 30
RETRY_EXCEPTIONS = [
    "scrapy.exceptions.CannotResolveHostError",
    "scrapy.exceptions.DownloadConnectionRefusedError",
    "scrapy.exceptions.DownloadFailedError",
    "scrapy.exceptions.ResponseDataLossError",
]
# What fails says so itself, in one line (was: ERROR).
RETRY_GIVE_UP_LOG_LEVEL = "DEBUG"
# A feed that is further away has lost its way (was: 20).
REDIRECT_MAX_TIMES = 5

# Scrapy starts as many tasks for every response; our items are written one after the other anyway
# (was: 100).
CONCURRENT_ITEMS = 1
# Ours returns none; Scrapy reads the source of every callback to find that out (was: True).
WARN_ON_GENERATOR_RETURN_VALUE = False

FEED_EXPORT_ENCODING = "utf-8"
FEED_EXPORTERS = {
    # The same lines for less.
    "jsonlines": "walsh_scrapy.items.JsonLinesExporter",
    "jsonl": "walsh_scrapy.items.JsonLinesExporter",
    "jl": "walsh_scrapy.items.JsonLinesExporter",
    # An empty field is an empty XML element, not the word None.
    "xml": "walsh_scrapy.items.XmlExporter",
}
