"""What another project adds to the settings that Scrapy made for it."""

ADDONS = {"walsh_scrapy.Addon": 500}
WALSH_USER_AGENT = "Mozilla/5.0 (compatible; Example-Bot/1.0; +http://bot.example/)"
WALSH_UA_TOKEN = "Example-Bot"
WALSH_SCOPE = "any"
WALSH_SERIAL = False
CONCURRENT_REQUESTS = 16
DOWNLOAD_HANDLERS = {"https": "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler"}
ITEM_PIPELINES = {"theirs.pipelines.StampPipeline": 300}
FEEDS = {"pages.jsonl": {"format": "jsonlines", "overwrite": True}}
