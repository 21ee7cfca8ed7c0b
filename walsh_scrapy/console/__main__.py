"""``python -m walsh_scrapy.console``, where the program ``walsh`` is not on the path."""

from walsh_scrapy.console.program import main

if __name__ == "__main__":
    main()
