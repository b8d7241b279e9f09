"""Sphinx: `make docs`."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from microsim.version import __version__  # noqa: E402

project = "MicroSim"
author = "The MicroSim developers"
copyright = "The MicroSim developers"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "understand/results", "ext"]
myst_enable_extensions = ["deflist", "attrs_inline", "colon_fence"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"
default_role = "code"  # docstrings quote names with one backtick

html_theme = "furo"
html_title = f"MicroSim {version}"
html_static_path = ["_static"]
html_css_files = ["microsim.css"]
html_copy_source = html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#5b21b6", "color-brand-content": "#6d28d9"},
    "dark_css_variables": {"color-brand-primary": "#c4b5fd", "color-brand-content": "#c4b5fd"},
}
pygments_style, pygments_dark_style = "tango", "monokai"
