"""kvsize's version: a literal, since asking the installed metadata takes longer than Python."""

__version__ = "0.1.0"
