"""The ``WALSH_`` settings, read once, checked and typed: `docs/settings.md` describes them."""

from walsh_scrapy.options.options import Options
from walsh_scrapy.options.reader import PREFIX, BadSetting, bad_setting, number_of

__all__ = ["PREFIX", "BadSetting", "Options", "bad_setting", "number_of"]
