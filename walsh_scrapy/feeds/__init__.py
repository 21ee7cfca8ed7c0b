"""The feed crawler, on top of the add-on: declared sources, their visits, and what these bring."""
