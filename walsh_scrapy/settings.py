"""The Scrapy settings of this project, in the order of Scrapy's template.

``addon.py`` forces the settings that the rules demand. The choices of an operator begin with
``WALSH_``: see ``docs/settings.md``.
"""

from scrapy.settings.default_settings import EXTENSIONS_BASE as _EXTENSIONS_BASE

from walsh_scrapy import identity as _identity

BOT_NAME = "walsh_scrapy"

SPIDER_MODULES = ["spiders"]
NEWSPIDER_MODULE = "spiders"
COMMANDS_MODULE = "walsh_scrapy.commands"

ADDONS = {"walsh_scrapy.Addon": 500}

# The name of this bot: R1.
WALSH_USER_AGENT = _identity.USER_AGENT
WALSH_UA_TOKEN = _identity.UA_TOKEN

# Middlewares of Scrapy that have no effect behind ours, but cost time for each request.
DOWNLOADER_MIDDLEWARES = {
    # ScopeMiddleware drops requests for other sites.
    "scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": None,
    # IdentityMiddleware removes its header.
    "scrapy.downloadermiddlewares.httpauth.HttpAuthMiddleware": None,
}
SPIDER_MIDDLEWARES = {
    # It would drop a declared target with a long URL, without a line for the operator.
    "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware": None,
    # No links are followed.
    "scrapy.spidermiddlewares.depth.DepthMiddleware": None,
    "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware": None,
}
# Off without the add-on too (WALSH_ENABLED = False).
TELNETCONSOLE_ENABLED = False
REMOTE_CONTROL_ENABLED = False
EXTENSIONS_BASE = dict(_EXTENSIONS_BASE)
# An export that cannot be written ends the run with one line and exit status 1.
EXTENSIONS_BASE["walsh_scrapy.feeds.feedexport.FeedExporter"] = EXTENSIONS_BASE.pop(
    "scrapy.extensions.feedexport.FeedExporter"
)

# Items go to the export and the stats without a signal, which would cost a tenth of a visit.
ITEM_PROCESSOR = "walsh_scrapy.feeds.feedexport.ItemProcessor"

# The lines that an operator needs to understand a run (Scrapy: DEBUG).
LOG_LEVEL = "INFO"
LOG_FORMAT = "%(asctime)s %(levelname)s %(message)s"
LOG_SHORT_NAMES = True
# The summary has the results of a run; -s STATS_DUMP=1 adds the stats of Scrapy.
STATS_DUMP = False
LOGSTATS_INTERVAL = 0

# While one host does not answer, a serial crawl waits with all others (Scrapy: 180, and two more
# tries).
DOWNLOAD_TIMEOUT = 30
RETRY_EXCEPTIONS = [
    "scrapy.exceptions.DownloadFailedError",
    "scrapy.exceptions.ResponseDataLossError",
]
# The failure itself is logged in one line (Scrapy: ERROR).
RETRY_GIVE_UP_LOG_LEVEL = "DEBUG"

# Scrapy starts this many tasks for every response, but items are written one after the other
# (Scrapy: 100).
CONCURRENT_ITEMS = 1
# The callbacks here return no value. Scrapy would parse the code of each to check that (Scrapy:
# True).
WARN_ON_GENERATOR_RETURN_VALUE = False

FEED_EXPORT_ENCODING = "utf-8"
# A crawl that is killed leaves the former file (-O) or whole lines (-o).
FEED_STORAGES = {
    "": "walsh_scrapy.feeds.feedexport.FileFeedStorage",
    "file": "walsh_scrapy.feeds.feedexport.FileFeedStorage",
}
FEED_EXPORTERS = {
    # The same lines as Scrapy's, in less time.
    "jsonlines": "walsh_scrapy.feeds.items.JsonLinesExporter",
    "jsonl": "walsh_scrapy.feeds.items.JsonLinesExporter",
    "jl": "walsh_scrapy.feeds.items.JsonLinesExporter",
    # A title that begins as a formula is not a formula in a spreadsheet.
    "csv": "walsh_scrapy.feeds.items.CsvExporter",
    # An empty field is an empty XML element, not the word None.
    "xml": "walsh_scrapy.feeds.items.XmlExporter",
}
