"""What ``scrapy keys`` writes, prints and finds."""
