"""``python -m walsh_scrapy``: the program ``walsh``, where it is not installed."""

from walsh_scrapy.console import main

if __name__ == "__main__":
    main()
