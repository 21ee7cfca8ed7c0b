"""What another project adds to the settings that Scrapy made for it."""

ADDONS = {"walsh_scrapy.Addon": 500}
USER_AGENT = "Mozilla/5.0 (compatible; Example-Bot/1.0; +http://bot.example/)"
ITEM_PIPELINES = {"theirs.pipelines.StampPipeline": 300}
FEEDS = {"pages.jsonl": {"format": "jsonlines", "overwrite": True}}
