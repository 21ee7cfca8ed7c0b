"""Their own pipeline."""


class StampPipeline:
    def process_item(self, item):
        return {**item, "stamp": "theirs"}
