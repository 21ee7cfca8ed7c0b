"""The pages as a site, by Sphinx: ``make docs``. Every warning is an error."""

project = "walsh-scrapy"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
# The root of the repository is read, so that links lead from the pages to its other files.
include_patterns = ["docs/**", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
exclude_patterns = [".*", "build", "dist"]
root_doc = "docs/index"
suppress_warnings = ["misc.highlighting_failure"]  # it knows no crontab
# Anchors of headings, as websites that show repositories make them.
myst_heading_anchors = 4

autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = "walsh-scrapy"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
