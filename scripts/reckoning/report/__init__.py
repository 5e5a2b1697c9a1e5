"""From findings to one page: `render` reads a results folder and writes one self-contained HTML file, and Markdown."""

from reckoning.report.page import render

__all__ = ["render"]
