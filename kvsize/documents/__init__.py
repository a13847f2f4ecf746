"""Tables and figures inside documents, kept current between markers: `kvsize docs`.

`text` finds what is a document's own, `code` what in it is code, `markers` the markers, `blocks`
what is asked between two of them; `filling` answers, `current` puts the answers in place.
"""
