"""What `scrapy datasheet` says: how a data set was collected, as the record has it."""
