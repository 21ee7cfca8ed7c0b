"""The ``WALSH_`` settings, read once, checked and typed: `docs/settings.md` describes them."""

from walsh_scrapy.options.options import Options, log_format_of
from walsh_scrapy.options.reader import PREFIX, BadSetting, bad_setting, number_of

__all__ = ["PREFIX", "BadSetting", "Options", "bad_setting", "log_format_of", "number_of"]
