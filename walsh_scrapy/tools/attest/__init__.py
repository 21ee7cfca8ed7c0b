"""What `scrapy attest` says: the contract's checklist, judged by the record."""
